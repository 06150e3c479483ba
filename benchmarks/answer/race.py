"""The race on one problem, on one core, in CPU seconds: other people's work changes them little.

python -m benchmarks.answer.race PROBLEM CORE FOLDER
"""

import os
import sys
import time
import warnings
from pathlib import Path
from typing import Any

from bilevax._files import DataError
from bilevax.paper.records import environment

from ..peers import records
from .follow import Program, follow, program
from .methods import METHODS
from .methods.blind import BLIND
from .problem import Problem
from .problems import PROBLEMS

RATES = (0.03, 0.1, 0.3, 1.0)
"""Step sizes of Adam on lam: everybody has the choice."""
BUDGET = {"hypercleaning": 6.0, "penalties": 1.5, "MLP": 2.5, "20 penalties": 1.5}
"""CPU seconds of one run."""
PATIENT = 10.0
"""The same for those that have no step size."""
SMALL = "20 penalties"
"""The problem that is small enough for searches without gradients, and for PyTorch."""
SOME = (
    "bilevax: full", "bilevax: K=5", "bilevax: Krylov(1, 10)", "bilevax: AmIGO-CG",
    "bilevax: SOBA", "jaxopt: L-BFGS", "SOBA", "AmIGO-CG", "F2SA",
)  # fmt: skip
"""Who runs there with them."""


def kind(problem: str) -> str:
    """The name of its file of records."""
    return "answer-" + problem.replace(" ", "-")


def everybody(problem: str) -> list[str]:
    """Who takes part."""
    if problem != SMALL:
        return list(METHODS)
    from .methods.in_torch import IN_TORCH

    return [*SOME, *IN_TORCH, *BLIND]


def build(problem: Problem, name: str) -> Program:
    if name in METHODS:
        return program(problem, METHODS[name](len(problem.S["y"])))
    if name in BLIND:
        return BLIND[name](problem)
    from .methods import in_torch

    return in_torch.program(problem, in_torch.IN_TORCH[name])


def runs(problem: Problem, name: str, budget: float) -> list[dict[str, Any]]:
    """A run for each step size."""
    made = build(problem, name)
    rates, budget = ([0.0], PATIENT) if name in BLIND else (RATES, budget)
    about = {"compile_s": made.seconds}
    return [about | {"rate": r} | follow(made, r, budget, time.process_time) for r in rates]


def attempt(problem: Problem, name: str, budget: float) -> dict[str, Any]:
    """The rows, or what went wrong."""
    began = time.perf_counter()
    try:
        found, said = runs(problem, name, budget), ""
    except Exception as error:
        found, said = [], f"{type(error).__name__}: {str(error).splitlines()[0][:200]}"
    took = round(time.perf_counter() - began, 1)
    return {"rows": found, "message": said, "status": "failed" if said else "done", "seconds": took}


def race(out: Path, title: str) -> None:
    """Everybody who is not there yet."""
    budget, around, problem = BUDGET[title], environment(), None
    settings = {"rates": RATES, "budget": budget}
    for name in everybody(title):
        if not records.is_there(out, kind(title), name, settings, around):
            problem = problem or PROBLEMS[title]()
            kept = attempt(problem, name, budget)
            kept |= {"settings": settings, "environment": around}
            records.write(out, kind(title), name, kept)
            print(f"{title}, {name}: {kept['message'] or kept['seconds']}", flush=True)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {int(sys.argv[2])})
    try:
        race(Path(sys.argv[3]), sys.argv[1])
    except DataError as error:
        sys.exit(f"{sys.argv[1]}: {error}")
