"""The tables of docs/benchmarks.md on time to a good answer."""

from collections.abc import Callable
from pathlib import Path

import numpy as np

from ..peers.page import table
from . import best
from .search import KIND as SEARCHED
from .search import RATES, cases
from .table import Line, lines


def answers(out: Path) -> str:
    """Seconds to the target, with the step size; else how far above the best."""
    found = lines(out)
    by = {title: {row.name: row for row in rows} for title, rows in found.items()}
    names = dict.fromkeys(row.name for rows in found.values() for row in rows)
    cell = lambda row: _cell(row) if row else "-"
    rows = [[name, *[cell(by[title].get(name)) for title in found]] for name in names]
    return table(["seconds (step size)", *found], rows)


def _cell(row: Line) -> str:
    if row.seconds is not None:
        return f"{row.seconds:.2g} ({row.rate:g})" if row.rate else f"{row.seconds:.2g}"
    if row.above is None:
        return "fails"
    return f"{row.above:+.1%}" if row.above > best.NEAR - 1 else "within 1 %, not timed"


def searched(out: Path) -> str:
    """The lowest loss of every step size, relative to the best of all."""
    rows = []
    for title, methods in cases(out, SEARCHED).items():
        goal = best.target(methods) / best.NEAR
        for name, case in methods.items():
            low = {
                row["rate"]: np.nanmin([np.inf, *row["losses"]]) / goal - 1 for row in case["rows"]
            }
            if set(low) == set(RATES):
                rows.append([f"{title}, {name}", *[_part(low[rate]) for rate in RATES]])
    return table(["above the best, by step size", *[f"{rate:g}" for rate in RATES]], rows)


def _part(x: float) -> str:
    return f"{x:.1%}" if np.isfinite(x) else "diverges"


def compiling(out: Path) -> str:
    """Seconds of the compiler."""
    found = lines(out)
    by = {title: {row.name: row.compile_s for row in rows} for title, rows in found.items()}
    names = dict.fromkeys(row.name for rows in found.values() for row in rows if row.compile_s)
    cell = lambda seconds: f"{seconds:.1f}" if seconds else "-"
    rows = [[name, *[cell(by[title].get(name)) for title in found]] for name in names]
    return table(["compiling, s", *found], rows)


TABLES: dict[str, Callable[[Path], str]] = {
    "answers": answers, "answers-search": searched, "answers-compiling": compiling,
}  # fmt: skip
