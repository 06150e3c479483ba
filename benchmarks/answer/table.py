"""From records to lines: who reached the target, when, and how near the others came."""

from pathlib import Path
from typing import Any, NamedTuple

from ..peers import records
from . import best
from .problems import PROBLEMS
from .race import kind


class Line(NamedTuple):
    """A method on a problem, with its best step size."""

    name: str
    rate: float
    seconds: float
    """To the target; infinite if it was not reached."""
    above: float
    """How far its lowest loss is above the best of all, in parts of it."""
    compile_s: float


def cases(out: Path) -> dict[str, dict[str, Any]]:
    """Problem -> method -> rows of its runs, without those that failed."""
    found = {title: records.read(out, kind(title)) for title in PROBLEMS}
    ran = lambda by: {name: case["rows"] for name, case in by.items() if case["rows"]}
    return {title: ran(by) for title, by in found.items() if ran(by)}


def target(methods: dict[str, Any]) -> float:
    return best.NEAR * min(map(best.lowest, methods.values()))


def lines(out: Path) -> dict[str, list[Line]]:
    """Problem -> its methods."""
    return {title: _lines(methods) for title, methods in cases(out).items()}


def _lines(methods: dict[str, Any]) -> list[Line]:
    goal = target(methods)
    chosen = {name: best.run(rows, goal) for name, rows in methods.items()}
    above = lambda name: best.NEAR * best.lowest(methods[name]) / goal - 1
    return [
        Line(name, row["rate"], best.reached(row, goal), above(name), row["compile_s"])
        for name, row in chosen.items()
    ]
