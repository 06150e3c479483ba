"""Thousands of fits in one process: memory and memory maps stay where they are.

    python benchmarks/many_fits.py [FITS]   # writes results/benchmarks/many_fits.json, prints it

A search over settings fits an estimator again and again. Fits to data of one shape share one
compiled program, whatever the settings, so that a process does not grow with their number.
"""

import json
import sys
from pathlib import Path

import jax
import numpy as np

from bilevax.apps import HyperCleaner

FITS, ROWS, EVERY = 2000, 50, 50
OUT = Path(__file__).parents[1] / "results" / "benchmarks" / "many_fits.json"


def data(seed: int) -> tuple[np.ndarray, np.ndarray]:
    x = np.random.default_rng(seed).normal(size=(ROWS, 3))
    return x, (x[:, 0] > 0).astype(int)


def resident() -> float:
    """Megabytes of this process in memory."""
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmRSS:")[1].split()[0]) / 1024


def maps() -> int:
    """Of which Linux allows a process 65530."""
    return Path("/proc/self/maps").read_text().count("\n")


def main(fits: int) -> None:
    """Every fit has settings and data of its own; every fiftieth is a row of the record."""
    rows = []
    for i in range(1, fits + 1):
        cleaner = HyperCleaner(steps=3, weight_decay=1e-6 * i, hyper_rate=0.1 / i)
        cleaner.fit(*data(i), *data(0))
        if i % EVERY == 0:
            rows.append({"fits": i, "MB": round(resident(), 1), "maps": maps()})
            print(rows[-1], flush=True)
            OUT.write_text(json.dumps({"jax": jax.__version__, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else FITS)
