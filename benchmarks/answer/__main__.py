"""python -m benchmarks.answer [--table] [--only PROBLEM ...] [--minutes N]

Takes the time of every method to a good answer, with all step sizes; a problem for each core.
Draws the figure, fills in docs/benchmarks.md.
"""

import argparse
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from queue import SimpleQueue

from ..peers.harness import ROOT
from ..peers.page import fill
from .figure import draw
from .page import TABLES
from .problems import PROBLEMS

OUT = ROOT / "results" / "benchmarks"
PAGE = ROOT / "docs" / "benchmarks.md"


def measure(chosen: list[str], minutes: float) -> None:
    """A process for each problem, stopped at the end of the time: what it has is on disk."""
    end, cores = time.monotonic() + 60 * minutes, SimpleQueue()
    count = os.cpu_count() or 1
    for core in range(count):
        cores.put(core)

    def one(title: str) -> None:
        core, left = cores.get(), end - time.monotonic()
        command = [sys.executable, "-m", "benchmarks.answer.race", title, str(core), str(OUT)]
        try:
            subprocess.run(command, cwd=ROOT, timeout=max(left, 0), check=False)
        except subprocess.TimeoutExpired:
            print(f"{title}: no time was left for all of it; the next run goes on")
        cores.put(core)

    with ThreadPoolExecutor(count) as pool:
        list(pool.map(one, chosen))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.answer", description=__doc__)
    parser.add_argument("--table", action="store_true", help="only draw figure and tables")
    parser.add_argument("--only", nargs="+", choices=PROBLEMS, default=list(PROBLEMS))
    parser.add_argument("--minutes", type=float, default=10.0, help="stop after these")
    given = parser.parse_args()
    if not given.table:
        measure(given.only, given.minutes)
    print(draw(OUT))
    PAGE.write_text(fill(PAGE.read_text("utf-8"), OUT, TABLES), "utf-8")


if __name__ == "__main__":
    main()
