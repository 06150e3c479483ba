"""The time to a good answer, in seconds of the clock on the wall, with the best step size."""

import time
from pathlib import Path
from typing import Any

from ..peers import records
from . import best
from .follow import follow
from .methods.blind import BLIND
from .problem import Problem
from .problems import PROBLEMS
from .search import KIND as SEARCHED
from .search import attempt, build, cases, where

KIND = "answer"
BUDGET = 12.0
"""Seconds of a run, if it does not reach the target."""
ROUNDS = 3
"""The least time counts."""


def measure(out: Path, chosen: list[str], minutes: float) -> None:
    """All cases that are not there yet; those for which no time is left wait for the next run."""
    end = time.monotonic() + 60 * minutes
    for title, searched in cases(out, SEARCHED).items():
        if title in chosen:
            _measure(out, title, searched, end)


def _measure(out: Path, title: str, searched: dict[str, Any], end: float) -> None:
    goal, problem, around = best.target(searched), None, where()
    for name, case in searched.items():
        rate = best.rate(case["rows"], goal)
        there = any(best.reached(row, goal) is not None for row in case["rows"])
        settings = {"target": goal, "rate": rate, "budget": BUDGET, "rounds": ROUNDS}
        label = f"{title} | {name}"
        old = records.is_there(out, KIND, label, settings, around["environment"])
        if old or rate is None or not there or time.monotonic() > end:
            continue
        problem = problem or PROBLEMS[title]()
        run = lambda name=name, rate=rate, problem=problem: timed(problem, name, rate, goal)
        kept = attempt(run)
        records.write(out, KIND, label, kept | {"settings": settings} | around)
        print(label, kept["message"] or best.reached(kept["rows"][0], goal), flush=True)


def timed(problem: Problem, name: str, rate: float, goal: float) -> list[dict[str, Any]]:
    """The quickest of some runs."""
    made = build(problem, name)
    made.chunk(made.begin, rate, 1)  # whatever is slow at the first time
    runs = [follow(made, rate, BUDGET, goal, time.perf_counter)]
    rounds = 1 if name in BLIND else ROUNDS  # a study goes on where it was
    while len(runs) < rounds and best.reached(runs[0], goal) is not None:
        runs.append(follow(made, rate, BUDGET, goal, time.perf_counter))
    quickest = min(runs, key=lambda row: best.reached(row, goal) or BUDGET)
    return [{"rate": rate, "compile_s": made.seconds} | quickest]
