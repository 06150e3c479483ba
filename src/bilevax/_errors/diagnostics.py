"""What the diagnostics say about bad input."""

from collections.abc import Sequence
from typing import Any

import jax
import jax.core

from . import check


def outside(name: str, *arguments: Any) -> None:
    """What is measured are numbers, which a transformation does not have."""
    if any(isinstance(a, jax.core.Tracer) for a in jax.tree.leaves(arguments)):
        raise TypeError(
            f"{name} reads numbers, and got a tracer: call it outside of jax.jit, vmap and grad."
        )


def rules(value: Any) -> list[Any]:
    if not isinstance(value, Sequence) or isinstance(value, str) or not value:
        raise TypeError(
            f"rules must be a list of rules, got {value!r}: write rules=[bx.Reverse(), "
            "bx.Reverse(K=10)]."
        )
    return list(value)


def depths(value: Sequence[int], T: int) -> list[int]:
    remedy = "give numbers of steps, as in (1, 5, 20)"
    out = sorted({check.integer(K, "depths", remedy) for K in value})
    if not out or out[-1] > T:
        raise ValueError(f"depths must lie between 1 and T = {T}, got {list(value)}.")
    return out


PLOT = "plot draws with matplotlib: in a clone of bilevax, pip install '.[plot]'."
