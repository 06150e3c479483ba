"""The search for step sizes, in CPU seconds: other people's work does not change its outcome."""

import time
from pathlib import Path
from typing import Any

from bilevax.paper.records import environment

from ..peers import records
from .follow import Program, follow, program
from .methods import METHODS
from .methods.blind import BLIND
from .problem import Problem
from .problems import PROBLEMS

RATES = (0.01, 0.03, 0.1, 0.3, 1.0)
"""Step sizes of Adam on lam: everybody's choice."""
BUDGET = {"hypercleaning": 5.0, "penalties": 2.5, "MLP": 4.0, "20 penalties": 2.5}
"""CPU seconds of one run of the search."""
PATIENT = 15.0
"""The same where there are no step sizes to be searched."""
SMALL = "20 penalties"
"""The problem that is small enough for searches without gradients, and for PyTorch."""
SOME = (
    "bilevax: full", "bilevax: K=5", "bilevax: Krylov(1, 10)", "bilevax: implicit, warm",
    "jaxopt: L-BFGS", "SOBA", "AmIGO-CG", "F2SA",
)  # fmt: skip
"""Who is there, too."""
KIND = "answer-search"
GROWTH = 1.5
"""From one look at lam to the next."""


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
    one = lambda rate: follow(made, rate, budget, float("-inf"), time.process_time, GROWTH)
    about = {"compile_s": made.seconds}
    return [about | {"rate": rate} | one(rate) for rate in rates]


def search(out: Path, chosen: list[str], again: bool = False) -> None:
    """All that is not there yet."""
    for title in chosen:
        settings = {"rates": RATES, "budget": BUDGET[title]}
        problem = None
        for name in everybody(title):
            label = f"{title} | {name}"
            if not again and records.read(out, KIND).get(label, {}).get("status") == "done":
                continue
            problem = problem or PROBLEMS[title]()
            run = lambda name=name, p=problem, b=BUDGET[title]: runs(p, name, b)
            kept = attempt(run)
            records.write(out, KIND, label, kept | {"settings": settings, **where()})
            print(label, kept["message"] or kept["seconds"], flush=True)


def attempt(run) -> dict[str, Any]:
    """The rows, or what went wrong."""
    began = time.perf_counter()
    try:
        found, said = run(), ""
    except Exception as error:
        found, said = [], f"{type(error).__name__}: {str(error).splitlines()[0][:200]}"
    took = round(time.perf_counter() - began, 1)
    return {"rows": found, "message": said, "status": "failed" if said else "done", "seconds": took}


def where() -> dict[str, Any]:
    return {"environment": environment()}


def cases(out: Path, kind: str) -> dict[str, dict[str, Any]]:
    """Problem -> method -> case."""
    found: dict[str, dict[str, Any]] = {}
    for label, case in records.read(out, kind).items():
        problem, name = label.split(" | ")
        found.setdefault(problem, {})[name] = case
    return found
