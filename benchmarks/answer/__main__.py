"""python -m benchmarks.answer [--search] [--table] [--only PROBLEM ...] [--minutes N]

Takes the time to a good answer with the step sizes that the recorded search found; with --search,
searches first what has not been searched. Draws the figure, fills in docs/benchmarks.md.
"""

import argparse
import warnings
from pathlib import Path

from ..peers.harness import ROOT
from ..peers.page import fill
from .figure import draw
from .measure import measure
from .page import TABLES
from .problems import PROBLEMS
from .search import search


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.answer", description=__doc__)
    parser.add_argument("--search", action="store_true", help="for step sizes: an hour")
    parser.add_argument("--table", action="store_true", help="only draw figure and tables anew")
    parser.add_argument("--only", nargs="+", choices=PROBLEMS, default=list(PROBLEMS))
    parser.add_argument("--out", type=Path, default=ROOT / "results" / "benchmarks")
    parser.add_argument("--minutes", type=float, default=9.0, help="begin no case after these")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    if given.search:
        search(given.out, given.only)
    if not given.table:
        measure(given.out, given.only, given.minutes)
    print(draw(given.out))
    target = ROOT / "docs" / "benchmarks.md"
    target.write_text(fill(target.read_text("utf-8"), given.out, TABLES), "utf-8")


if __name__ == "__main__":
    main()
