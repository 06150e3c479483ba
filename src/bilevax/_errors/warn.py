"""Warnings that point at the line of the user's from which bilevax was called."""

import contextlib
import sys
import warnings
from pathlib import Path

import equinox
import jax

_INSIDE = (
    str(Path(__file__).parents[1]),
    *(str(Path(module.__file__ or "").parent) for module in (equinox, jax)),
    contextlib.__file__,
)


def warn(text: str, category: type[Warning]) -> None:
    """Where no line of the user's is on the stack, this one is named."""
    frame, level = sys._getframe(), 1
    while frame is not None and frame.f_code.co_filename.startswith(_INSIDE):
        frame, level = frame.f_back, level + 1
    warnings.warn(text, category, stacklevel=1 if frame is None else level)
