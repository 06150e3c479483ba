"""Time, in one process, the methods taking turns; memory, each method in a process of its own."""

import ctypes
import resource
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from .agree import said
from .libraries import Method
from .problems import Problem
from .wants import Full, NotOfferedError, Program, Want, distance

ROUNDS = 15
ENOUGH = 3
"""Rounds after which a method that has used up its share of the time rests."""
SHORT = 5
"""Milliseconds below which a turn is twenty runs."""
Load = Callable[[str], ModuleType]


def exact(problem: Problem) -> dict:
    """The whole hypergradient, in float64."""
    import jax

    from . import plain_jax

    with jax.enable_x64(True):
        program = plain_jax.reference(problem.cast("float64"), Full())
        return program.read(program.run())


def begin(load: Load, problem: Problem, method: Method, truth: dict) -> tuple[dict, Program | None]:
    """Build and run once: the row so far, and the program if there is one to be timed."""
    library, want = method
    row = {"library": library, "want": str(want)}
    try:
        program = load(library).build(problem, want)
        started = time.perf_counter()
        out = program.run()
        row["first_ms"] = 1000 * (time.perf_counter() - started)
        row["error"] = distance(program.read(out), truth)
    except NotOfferedError as error:
        return row | {"status": "not offered", "message": str(error)}, None
    except Exception as error:
        return row | {"status": "failed", "message": said(error)}, None
    compiled = {"compile_s": program.compile_seconds, "program_bytes": program.bytes}
    return row | compiled | {"ms": row["first_ms"], "rounds": 0, "status": "measured"}, program


def times(
    problem: Problem, methods: Sequence[Method], seconds: float, load: Load, rounds: int = ROUNDS
) -> Iterator[dict[str, Any]]:
    """Rows, the same ones again after each round with what is known then."""
    end = time.perf_counter() + seconds
    truth = exact(problem)
    problem = problem.cast("float32")
    programs: dict[int, Program] = {}
    rows: list[dict[str, Any]] = []
    for method in methods:
        if time.perf_counter() > end:
            label = {"library": method[0], "want": str(method[1])}
            rows.append(label | {"status": "failed", "message": "no time was left for it"})
        else:
            row, program = begin(load, problem, method, truth)
            rows.append(row)
            if program:
                programs[len(rows) - 1] = program
        yield rows[-1]
    share = (end - time.perf_counter()) / max(len(programs), 1)
    for _ in range(rounds):
        yield from _turn(programs, rows, end, share)


def _turn(
    programs: Mapping[int, Program], rows: list[dict], end: float, share: float
) -> Iterator[dict]:
    for i, program in programs.items():
        seconds, done = rows[i]["ms"] / 1000, rows[i]["rounds"]
        tired = done >= ENOUGH and (done + 1) * seconds > share
        if tired or time.perf_counter() + seconds > end:
            continue
        try:
            runs = 1 if rows[i]["ms"] > SHORT else 20
            took = 1000 * min(seconds_of(program.run) for _ in range(runs))
        except Exception as error:
            rows[i] |= {"status": "failed", "message": said(error)}
        else:
            best = min(rows[i]["ms"], took) if done else took
            rows[i] |= {"ms": best, "rounds": done + 1}
        yield rows[i]


def seconds_of(run: Callable[[], Any]) -> float:
    started = time.perf_counter()
    run()
    return time.perf_counter() - started


def memory(module: ModuleType, problem: Problem, want: Want, warm: Problem) -> dict[str, Any]:
    """What one computation adds to the process, over what it is with the data and the program.

    A small problem comes first, for what a library sets up when it is first used.
    """
    small = module.build(warm.cast("float32"), want)
    small.run()
    program = module.build(problem.cast("float32"), want)
    before = _forget_peak()
    first = 1000 * seconds_of(program.run)
    row = {"added_bytes": _peak() - before, "first_ms": first}
    return row | {"process_bytes": _peak(), "program_bytes": program.bytes, "status": "measured"}


def _peak() -> int:
    """The most that the process has had in memory since `_forget_peak`."""
    found = _status("VmHWM:")
    unit = 1 if sys.platform == "darwin" else 1024
    return found or resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def _status(key: str) -> int:
    path = Path("/proc/self/status")
    lines = path.read_text().splitlines() if path.exists() else []
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith(key)), 0)


def _forget_peak() -> int:
    """What the process has in memory now; Linux can forget its peak, elsewhere it stays."""
    try:
        ctypes.CDLL("libc.so.6").malloc_trim(0)
        Path("/proc/self/clear_refs").write_text("5")
        return _status("VmRSS:")
    except OSError:
        return _peak()
