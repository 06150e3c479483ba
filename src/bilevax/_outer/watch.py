"""Seeing a run: a progress bar, TensorBoard's event files."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import jax
import numpy as np

from .._types import Hyper

History = dict[str, np.ndarray]


class Progress(NamedTuple):
    """What a callback is given."""

    step: int
    """How many hyper-iterations have been taken."""
    lam: Hyper
    history: History
    """The records since the last call."""


Show = Callable[[int, History], None]
"""(hyper-iterations taken, the records since the last call)."""


@contextmanager
def bar(steps: int, done: int, wanted: bool | None) -> Iterator[Show]:
    """A live line on a terminal: value, |h|, seconds an iteration, time left."""
    terminal = sys.stderr.isatty() if wanted is None else wanted
    if not terminal or jax.process_index() > 0:
        yield lambda step, new: None
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    columns = (
        MofNCompleteColumn(),
        BarColumn(),
        TextColumn("f {task.fields[value]}  |h| {task.fields[h_norm]}  {task.fields[pace]}"),
        TimeRemainingColumn(),
    )
    began = time.monotonic()
    with Progress(*columns, console=Console(stderr=True)) as progress:
        task = progress.add_task(
            "", total=steps, completed=done, value="-", h_norm="-", pace="compiling"
        )

        def show(step: int, new: History) -> None:
            pace = (time.monotonic() - began) / max(step - done, 1)
            if not len(new["value"]):
                return
            value, h_norm = (f"{float(new[name][-1]):.4g}" for name in ("value", "h_norm"))
            pace = f"{_seconds(pace)}/it"
            progress.update(task, completed=step, pace=pace, value=value, h_norm=h_norm)

        yield show


def _seconds(x: float) -> str:
    return f"{x:.2f} s" if x >= 1 else f"{1e3 * x:.3g} ms"


@contextmanager
def events(log_dir: Any, done: int) -> Iterator[Show]:
    """TensorBoard's event files; of a resumed run, what was written beyond `done` is void."""
    if log_dir is None or jax.process_index() > 0:
        yield lambda step, new: None
        return
    try:
        from tensorboardX import SummaryWriter
    except ImportError as error:
        raise ImportError(
            "log_dir asks for TensorBoard's event files, which tensorboardX writes: "
            "pip install 'bilevax[tensorboard]'."
        ) from error

    with SummaryWriter(str(log_dir), purge_step=done + 1) as writer:

        def show(step: int, new: History) -> None:
            for name, values in new.items():
                for i, x in enumerate(values.tolist(), start=step - len(values) + 1):
                    writer.add_scalar(name, x, i)

        yield show
