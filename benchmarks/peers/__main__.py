"""python -m benchmarks.peers [--quick] [--table] [--only KIND ...] [--out FOLDER] [--minutes N]

Measures bilevax and its alternatives, draws the figures, fills in docs/benchmarks.md.
"""

import argparse
from pathlib import Path

from . import page, records
from .figures import draw
from .harness import ROOT, measure


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.peers", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small problems: does it all work?")
    parser.add_argument("--table", action="store_true", help="only draw figures and tables")
    parser.add_argument("--only", nargs="+", choices=records.KINDS, default=records.KINDS)
    parser.add_argument(
        "--out", type=Path, help="default: results/benchmarks; quick: runs/benchmarks"
    )
    parser.add_argument("--minutes", type=float, default=20.0, help="begin no case after these")
    parser.add_argument("--patience", type=float, default=1.0, help="longer limits for every case")
    given = parser.parse_args()
    usual = ROOT / ("runs" if given.quick else "results") / "benchmarks"
    out = (given.out or usual).resolve()
    if not given.table:
        measure(out, given.quick, given.minutes, given.only, given.patience)
    for path in draw(out):
        print(path)
    source = ROOT / "docs" / "benchmarks.md"
    target = source if out == ROOT / "results" / "benchmarks" else out / "benchmarks.md"
    target.write_text(page.fill(source.read_text("utf-8"), out), "utf-8")
    print(target)


if __name__ == "__main__":
    main()
