"""Do all libraries give the same hypergradients? In float64, on small problems, before any clock.

The reference is JAX's own differentiation of the loop (for implicit differentiation: Eq. 11 with a
dense Hessian). A distance above LIMIT is another answer, not rounding.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from . import problems
from .problems import Problem
from .wants import (
    Checkpointed,
    Full,
    Implicit,
    NotOfferedError,
    Truncated,
    Want,
    distance,
)

LIMIT = 1e-4
"""Constants that a library keeps in float32 whatever the data are may cost 1e-5."""
CAUSE = re.compile(r"[\w.]*(Error|Exception|Exit|Interrupt): ")
WANTS = (Full(), Truncated(1), Truncated(5), Checkpointed(3), Implicit(1e-10))


def reference(problem: Problem, want: Want, cache: Path | None) -> dict[str, np.ndarray]:
    """What is right; kept in `cache`, so that it is computed once for all libraries."""
    name = f"{problem.name}-{want}.npz".replace(" ", "")
    if cache and (cache / name).exists():
        with np.load(cache / name) as kept:
            return {k.replace("|", "/"): kept[k] for k in kept.files}
    from bilevax._files import atomic_write

    from . import plain_jax

    program = plain_jax.reference(problem, want)
    h = program.read(program.run())
    if cache:
        cache.mkdir(parents=True, exist_ok=True)
        with atomic_write(cache / name) as file:  # another process may be reading or writing it
            np.savez(file, **{k.replace("/", "|"): a for k, a in h.items()})
    return h


def judge(module: ModuleType, problem: Problem, want: Want, cache: Path | None) -> dict[str, Any]:
    """Whether one answer is right."""
    try:
        program = module.build(problem, want)
        h = program.read(program.run())
    except NotOfferedError as error:
        return {"status": "not offered", "message": str(error)}
    except Exception as error:
        return {"status": "failed", "message": said(error)}
    away = distance(h, reference(problem, want, cache))
    right = away <= LIMIT
    return {"status": "agrees" if right else "differs", "distance": away}


def said(error: BaseException) -> str:
    """The first line of what an error says, not too long; of one from a callback, its cause's."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    causes = [line for line in lines[1:] if CAUSE.match(line)]
    first = causes[-1] if causes else f"{type(error).__name__}: {lines[0] if lines else ''}"
    return first[:300]


def has_optimum(name: str) -> bool:
    """Whether conjugate gradients have a positive Hessian to solve with at w_T; and in Omniglot
    what is learned is the start, which is invisible at the end.
    """
    return name in ("hypercleaning", "toy")


def rows(library: str, module: ModuleType, names, cache: Path | None = None) -> Iterator[dict]:
    """One row for each problem and want."""
    for name in names:
        problem = problems.tiny(name).cast("float64")
        for want in WANTS:
            if isinstance(want, Implicit) and not has_optimum(name):
                continue
            if name == "Omniglot" and want == Truncated(1):  # slow to compile, and K = 5 is there
                continue
            label = {"library": library, "problem": name, "want": str(want)}
            yield label | judge(module, problem, want, cache)
