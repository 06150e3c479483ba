"""Showing a run while it goes on: to a callback, as a progress bar, in event files."""

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import jax

from .._errors import outer as check
from .._types import Hyper
from .history import History


class Progress(NamedTuple):
    """What a callback of `minimize` is given.

    !!! example

        >>> import bilevax as bx, optax
        >>> from bilevax import problems
        >>> p = problems.counterexample()
        >>> steps = []
        >>> def callback(progress: bx.Progress):
        ...     steps.extend(progress.evaluations["step"])
        >>> result = bx.minimize(p.f, p.xi, bx.Reverse(), p.lam, T=p.T, steps=3, S=p.S,
        ...     optimizer=optax.sgd(0.1), evaluate=lambda lam: 1.0, callback=callback)
        >>> print(*steps)
        1.0 2.0 3.0
    """

    step: int
    """How many hyper-iterations have been taken."""
    lam: Hyper
    """After the last of them."""
    history: History
    """Since the last call, for every hyper-iteration: as `Result.history`."""
    evaluations: History
    """Since the last call, for every evaluation: as `Result.evaluations`."""


Show = Callable[[Progress], Any]


@contextmanager
def progress_bar(steps: int, done: int, wanted: bool | None) -> Iterator[Show]:
    """A line on the terminal: value, |h|, seconds for an iteration, time left."""
    terminal = sys.stderr.isatty() if wanted is None else wanted
    if not terminal or jax.process_index() > 0:
        yield lambda progress: None
        return
    import rich.console
    import rich.progress

    columns = (
        rich.progress.MofNCompleteColumn(),
        rich.progress.BarColumn(),
        rich.progress.TextColumn("{task.description}"),
        rich.progress.TimeRemainingColumn(),
    )
    began = time.monotonic()
    with rich.progress.Progress(*columns, console=rich.console.Console(stderr=True)) as line:
        task = line.add_task("compiling", total=steps, completed=done)

        def show(progress: Progress) -> None:
            if not len(progress.history["value"]):
                return
            value, h_norm = (float(progress.history[name][-1]) for name in ("value", "h_norm"))
            pace = _seconds((time.monotonic() - began) / max(progress.step - done, 1))
            text = f"f {value:.4g}  |h| {h_norm:.4g}  {pace}/it{_audited(progress.history)}"
            line.update(task, completed=progress.step, description=text)

        yield show


def _audited(history: History) -> str:
    """What the last audit found of the rule."""
    if "audit_error" not in history:
        return ""
    error, cosine = (float(history[name][-1]) for name in ("audit_error", "audit_cosine"))
    return f"  rule's error {error:.2g}, cosine {cosine:.2f}"


def _seconds(x: float) -> str:
    return f"{x:.2f} s" if x >= 1 else f"{1e3 * x:.3g} ms"


@contextmanager
def event_files(log_dir: Any, done: int) -> Iterator[Show]:
    """For TensorBoard; of a resumed run, what was written after `done` is void."""
    if log_dir is None or jax.process_index() > 0:
        yield lambda progress: None
        return
    try:
        from tensorboardX import SummaryWriter
    except ImportError as error:
        check.needs_tensorboard(error)

    with SummaryWriter(os.path.expanduser(log_dir), purge_step=done + 1) as writer:

        def show(progress: Progress) -> None:
            for name, values in progress.history.items():
                for i, x in enumerate(values.tolist(), start=progress.step - len(values) + 1):
                    writer.add_scalar(name, x, i)

        yield show
