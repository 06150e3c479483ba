"""Two lines on the terminal: the way there and the way back, with the time left for each."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import jax

from .route import Leg, Segment, Tree


@contextmanager
def two_way_bar(
    segments: list[Segment], tree: Tree, at: int, wanted: bool | None
) -> Iterator[Callable[[Leg], None]]:
    """A function to call after each leg; `at` is the boundary that the way back has reached."""
    terminal = sys.stderr.isatty() if wanted is None else wanted
    if not terminal or jax.process_index() > 0:
        yield lambda leg: None
        return
    import rich.console
    import rich.progress

    columns = (
        rich.progress.TextColumn("{task.description}"),
        rich.progress.MofNCompleteColumn(),
        rich.progress.BarColumn(),
        rich.progress.TimeRemainingColumn(),
    )
    T = segments[-1].t + segments[-1].n
    K = T - segments[tree.first].t
    with rich.progress.Progress(*columns, console=rich.console.Console(stderr=True)) as lines:
        gone = T - (T if at == tree.last else segments[at].t)
        there = lines.add_task("there", total=T, completed=T if gone else 0)
        back = lines.add_task("back", total=K, completed=gone, start=bool(gone))

        def show(leg: Leg) -> None:
            t, n = segments[leg.j]
            if leg.back:
                lines.start_task(back)
                lines.update(back, completed=T - t)
            elif not lines.tasks[there].finished:
                lines.update(there, completed=t + n)

        yield show
