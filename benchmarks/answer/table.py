"""From records to rows: who reached the target, when, and how near the others came."""

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from . import best
from .measure import KIND
from .problems import PROBLEMS
from .search import KIND as SEARCHED
from .search import cases


class Line(NamedTuple):
    """A method on a problem."""

    name: str
    rate: float | None
    seconds: float | None
    """To the target; None if it was not reached."""
    above: float | None
    """How far the lowest loss of all runs is above the best, in parts of it; None if it failed."""
    compile_s: float | None
    iterations: int | None


def lines(out: Path) -> dict[str, list[Line]]:
    """Problem -> its methods, in the order of the search."""
    searched, measured = cases(out, SEARCHED), cases(out, KIND)
    return {
        title: [
            _line(name, case, measured.get(title, {}).get(name), best.target(searched[title]))
            for name, case in searched[title].items()
        ]
        for title in PROBLEMS
        if title in searched
    }


def _line(name: str, case: dict[str, Any], timed: dict[str, Any] | None, goal: float) -> Line:
    losses = [loss for row in case["rows"] for loss in row["losses"] if np.isfinite(loss)]
    above = best.NEAR * min(losses) / goal - 1 if losses else None
    compiled = case["rows"][0]["compile_s"] if case["rows"] else None
    rate = best.rate(case["rows"], goal)
    fresh = timed if timed and timed["settings"]["target"] == goal and timed["rows"] else None
    if fresh is None:
        return Line(name, rate, None, above, compiled, None)
    (row,) = fresh["rows"]
    return Line(name, rate, best.reached(row, goal), above, row["compile_s"], row["iterations"][-1])
