"""Runs the cases, each in a process of its own and with a limit of time; nothing stops the rest."""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import Any

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from bilevax.paper.records import environment

from . import problems, records
from .agree import CAUSE
from .libraries import LIBRARIES, timed, versions, weighed

ROOT = Path(__file__).parent.parent.parent
GRACE = 60
"""Seconds that a case may take beyond its own, to import and to compile."""
TIMED = ("times", "growth")
"""Cases of these kinds have the machine to themselves."""
WRITING = Lock()


@dataclass(frozen=True)
class Case:
    """What is measured, and for how long."""

    kind: str
    name: str
    settings: dict[str, Any]
    seconds: float
    expected: int = 1
    """Rows, for the progress bar."""


def cases(quick: bool) -> list[Case]:
    return [*_agreement(quick), *_times(quick), *_memory(quick), *_growth(quick)]


def _agreement(quick: bool) -> Iterable[Case]:
    names = ["toy"] if quick else list(problems.NAMES)
    for library in LIBRARIES:
        settings = {"library": library, "problems": names}
        yield Case("agreement", library, settings, 120, 5 if quick else 17)


def _times(quick: bool) -> Iterable[Case]:
    seconds = {"hypercleaning": 190, "MLP, Adam": 120, "Omniglot": 270, "toy": 30}
    horizons = {"toy": (10, 100, 1000)} if not quick else {"toy": (10,)}
    for name, limit in seconds.items():
        for T in horizons.get(name, (None,)):
            limit = 30 if quick else limit
            settings = {"problem": name, "T": T, "quick": quick, "seconds": limit}
            title = name if T is None else f"{name}, T = {T}"
            yield Case("times", title, settings, limit, len(timed(name, T or 100, quick)))


def _memory(quick: bool) -> Iterable[Case]:
    for T in (10,) if quick else (10, 100, 300):
        for library, want in weighed(T)[:: 5 if quick else 1]:
            label = {"problem": "hypercleaning", "T": T, "library": library, "want": str(want)}
            name = f"T = {T}, {library}, {want}"
            yield Case("memory", name, label | {"quick": quick}, 30)


def _growth(quick: bool) -> Iterable[Case]:
    yield Case("growth", "growth", {"quick": quick}, 150, 26 if quick else 48)


def run(
    case: Case, advance: Callable[[int], None], patience: float = 1.0, cache: str | None = None
) -> dict[str, Any]:
    """A case from its start to its end, or to where it came: its rows and what became of it."""
    begin, limit = time.monotonic(), patience * (case.seconds + GRACE)
    around = {"kind": case.kind, "patience": patience, "cache": cache}
    with tempfile.TemporaryDirectory() as folder:
        given, found, said = (Path(folder) / name for name in ("case.json", "rows", "said"))
        given.write_text(json.dumps(case.settings | around))
        found.touch()
        with open(said, "w") as stderr:
            child = subprocess.Popen(
                [sys.executable, "-m", "benchmarks.peers.child", str(given), str(found)],
                cwd=ROOT, env=os.environ | {"TORCHDYNAMO_DISABLE": "1"},
                stdout=subprocess.DEVNULL, stderr=stderr,
            )  # fmt: skip
            status = _wait(child, found, limit, advance)
        lines = [line for line in said.read_text(errors="replace").splitlines() if line.strip()]
        rows = records.latest(found.read_text().splitlines())
    message = f"stopped after {limit:.0f} s" if status is None else ""
    if status:
        causes = [line for line in lines if CAUSE.match(line)] or lines
        last = causes[-1] if causes else f"the process ended with status {status}"
        message = last[:300].replace(str(ROOT), ".")
    ended = "done" if status == 0 else "failed"
    took = round(time.monotonic() - begin, 1)
    return {"status": ended, "message": message, "seconds": took, "rows": rows}


def _wait(child: subprocess.Popen, found: Path, seconds: float, advance) -> int | None:
    """The status of the child; None if it had to be stopped."""
    end = time.monotonic() + seconds
    while child.poll() is None:
        advance(len(records.latest(found.read_text().splitlines())))
        if time.monotonic() > end:
            child.kill()
            child.wait()
            return None
        time.sleep(0.2)
    return child.returncode


def measure(
    out: Path,
    quick: bool,
    minutes: float,
    chosen: Iterable[str] = records.KINDS,
    patience: float = 1.0,
) -> None:
    """All cases that are not there yet; those for which no time is left wait for the next run."""
    machine = environment()
    machine["packages"] |= versions()
    end, todo = time.monotonic() + 60 * minutes, [c for c in cases(quick) if c.kind in chosen]
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with (
        Progress(*columns, TimeElapsedColumn()) as progress,
        tempfile.TemporaryDirectory() as cache,
    ):
        whole = progress.add_task("all cases", total=len(todo))

        def one(case: Case) -> None:
            there = records.is_there(out, case.kind, case.name, case.settings, machine)
            if not there and time.monotonic() < end:
                task = progress.add_task(f"{case.kind}: {case.name}", total=case.expected)
                found = run(case, lambda n: progress.update(task, completed=n), patience, cache)
                kept = {"settings": case.settings, "environment": machine} | found
                with WRITING:
                    records.write(out, case.kind, case.name, kept)
                progress.remove_task(task)
                if found["status"] != "done":
                    progress.console.print(f"{case.kind}, {case.name}: {found['message']}")
            progress.advance(whole)

        for kind in records.KINDS:
            together = 1 if kind in TIMED else os.cpu_count() or 1
            with ThreadPoolExecutor(together) as pool:
                list(pool.map(one, (case for case in todo if case.kind == kind)))
