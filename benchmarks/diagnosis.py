"""What a diagnosis costs on the shape of the paper's hypercleaning, against one full hypergradient.

python benchmarks/diagnosis.py
"""

import json
import pathlib

import jax
from outer import best, cleaning_problem

import bilevax as bx

OUT = pathlib.Path(__file__).parent.parent / "results" / "diagnosis.json"


def main():
    f, xi, lam, S = cleaning_problem()
    full = bx.hypergradient(f, xi, bx.Reverse(), T=100)
    whole = best(lambda: jax.block_until_ready(full(lam, S)), 4)
    cheap = lambda: bx.diagnose(f, xi, lam, S, T=100, depths=(1, 2, 5, 10, 20, 50), lanczos=0)
    every = lambda: bx.diagnose(f, xi, lam, S, T=100)
    record = {"full_hypergradient_s": whole}
    record |= {"cheap_ratio": best(cheap, 4) / whole, "every_ratio": best(every, 4) / whole}
    OUT.write_text(json.dumps(record, indent=1) + "\n")
    print(record)


if __name__ == "__main__":
    main()
