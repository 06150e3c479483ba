"""Does HyperCleaner find more wrong labels with a correction? Judged on rows it has not seen.

    python benchmarks/correction/cleaner.py

scikit-learn's digits, 900 noisy rows, 497 for testing; HyperCleaner with its defaults, and the same
with `correct=True`. Writes results/correction/cleaner.json.
"""

import functools
import itertools
import json
import sys
from pathlib import Path

from run import OUT

sys.path.append(str(Path(__file__).parents[1]))
from cleaning import cleaner, digits, split

import bilevax as bx
from bilevax.apps import _hypercleaner

NOISES, TRUSTED, SEEDS, N = (0.1, 0.3, 0.5), (50, 400), range(3), 900


def main() -> None:
    rows, plain = [], _hypercleaner.minimize
    for noise, trusted, seed in itertools.product(NOISES, TRUSTED, SEEDS):
        d = split(digits(), N, trusted, noise, seed, "uniform")
        for corrected in (False, True):
            _hypercleaner.minimize = functools.partial(plain, correct=corrected)
            found = cleaner(d)
            kept = {k: found[k] for k in ("f1", "f1_lam", "accuracy", "rule")}
            where = {"noise": noise, "trusted": trusted, "seed": seed, "corrected": corrected}
            rows.append(where | kept)
            print(rows[-1], flush=True)
    text = json.dumps({"bilevax": bx.__version__, "rows": rows}, indent=1)
    (OUT / "cleaner.json").write_text(text + "\n")


if __name__ == "__main__":
    main()
