"""Hypercleaning at lam = 0 on several draws of the data, some at the edge of stability.

`turn` is <s_68 - s_67, s_67 - s_66> / |s_67 - s_66|^2: near -1 where the loop swings across
a valley. One line for each draw and rule goes to results/krylov/draws.jsonl.

    python benchmarks/krylov/draws.py --data DIR
"""

import json
import warnings

import data
import jax.numpy as jnp
import measure
import problems

import bilevax as bx

DRAWS = range(6)
RULES = {
    "Krylov 1x10": bx.Krylov(1, 10),
    "Krylov 1x10 K10": bx.Krylov(1, 10, K=10),
}


def turn(problem, S) -> float:
    a, b, c = (bx.solve(problem.xi, problem.lam, S, T=t) for t in (66, 67, 68))
    return float(jnp.sum((c - b) * (b - a)) / jnp.sum((b - a) ** 2))


def main():
    folder = data.arguments(__doc__).parse_args().data
    warnings.simplefilter("ignore", bx.ToleranceWarning)
    problem = problems.hypercleaning()
    estimate = lambda rule: bx.hypergradient(problem.f, problem.xi, rule, T=problem.T)
    full, programs = estimate(bx.Reverse()), {k: estimate(r) for k, r in RULES.items()}
    with (data.RESULTS / "draws.jsonl").open("w") as file:
        for draw in DRAWS:
            S = data.noisy_mnist(folder, seed=draw)
            exact, swing = full(problem.lam, S).h, round(turn(problem, S), 3)
            for name, program in programs.items():
                out = program(problem.lam, S)
                row = {"draw": draw, "turn": swing, "rule": name}
                row |= {"products": int(out.report["products"])}
                file.write(json.dumps(row | measure.score(out.h, exact)) + "\n")
                file.flush()


if __name__ == "__main__":
    main()
