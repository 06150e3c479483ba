"""The tables of docs/benchmarks.md on time to a good answer."""

from collections.abc import Callable
from math import isfinite
from pathlib import Path

from ..peers.page import table
from . import best
from .race import RATES
from .table import Line, cases, lines, target


def answers(out: Path) -> str:
    """Seconds to the target with the best step size; else how far above the best."""
    return _by_problem(out, "CPU seconds (step size)", _answer)


def _answer(row: Line) -> str:
    if not isfinite(row.seconds):
        return f"{row.above:+.1%}" if isfinite(row.above) else "diverges"
    return f"{row.seconds:.2g} ({row.rate:g})" if row.rate else f"{row.seconds:.2g}"


def compiling(out: Path) -> str:
    return _by_problem(out, "compiling, CPU seconds", lambda row: f"{row.compile_s:.1f}")


def _by_problem(out: Path, head: str, cell: Callable[[Line], str]) -> str:
    by = {title: {row.name: cell(row) for row in rows} for title, rows in lines(out).items()}
    names = dict.fromkeys(name for cells in by.values() for name in cells)
    rows = [[name, *[cells.get(name, "-") for cells in by.values()]] for name in names]
    return table([head, *by], rows)


def search(out: Path) -> str:
    """The seconds of every step size to the target, or its distance from the best."""
    rows = []
    for title, methods in cases(out).items():
        goal = target(methods)
        for name, runs in methods.items():
            found = {run["rate"]: run for run in runs}
            if set(found) == set(RATES):
                rows.append([f"{title}, {name}", *[_run(found[r], goal) for r in RATES]])
    return table(["step size", *[f"{rate:g}" for rate in RATES]], rows)


def _run(run: best.Row, goal: float) -> str:
    seconds, above = best.reached(run, goal), best.NEAR * best.lowest([run]) / goal - 1
    if isfinite(seconds):
        return f"{seconds:.2g} s"
    return f"{above:+.1%}" if isfinite(above) else "diverges"


TABLES: dict[str, Callable[[Path], str]] = {
    "answers": answers, "answers-search": search, "answers-compiling": compiling,
}  # fmt: skip
