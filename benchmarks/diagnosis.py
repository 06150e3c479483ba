"""What a diagnosis costs on the shape of the paper's hypercleaning, against one full hypergradient.

    python benchmarks/diagnosis.py

In CPU time, on one thread, the fastest of a few calls in turns.
"""

import json
import pathlib

from forecast import cleaning, fastest

import bilevax as bx

OUT = pathlib.Path(__file__).parent.parent / "results" / "diagnosis.json"


def main():
    p = cleaning()
    diagnose = lambda **more: lambda lam, S: bx.diagnose(p.f, p.xi, lam, S, T=p.T, **more).error
    took = fastest(
        {
            "full": bx.hypergradient(p.f, p.xi, bx.Reverse(), T=p.T),
            "cheap": diagnose(depths=(1, 2, 5, 10, 20, 50), lanczos=0),
            "every": diagnose(),
        },
        (p.lam, p.S),
        seconds=20,
    )
    record = {"full_hypergradient_s": took["full"]}
    record |= {f"{name}_ratio": took[name] / took["full"] for name in ("cheap", "every")}
    OUT.write_text(json.dumps(record, indent=1) + "\n")
    print(record)


if __name__ == "__main__":
    main()
