"""Hypercleaning at paper size: what a hyper-iteration costs, against what it must cost.

    python benchmarks/hypercleaning.py

- A step of gradient descent reads the 5000 x 785 data matrix twice, and multiplies it twice with a
  10 x 785 or 5000 x 10 matrix. The forward pass is compared with both floors: two matrix-vector
  products (reading), and the machine's best product of large matrices (arithmetic).
- Rules are compared with the forward pass.

All programs take turns in one process; the least of the times counts. Data are random, of
MNIST's shape and density: times do not depend on the values.
"""

import json
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

import bilevax as bx
from bilevax.paper.experiments.hypercleaning import program as cleaning
from bilevax.paper.experiments.hypercleaning.corrupt import Corrupted

OUT = Path(__file__).parent.parent / "results" / "hypercleaning" / "speed.json"
RULES = ("Reverse(K=1)", "Reverse(K=5)", "Krylov(2, 4)", "Reverse(K=25)", "Reverse(K=100)")
T, ROUNDS = 100, 12


def data(n=5000, D=784, seed=0):
    rng = np.random.default_rng(seed)
    part = lambda: (rng.random((n, D)) * (rng.random((n, D)) < 0.19)).astype(np.float32)
    one = lambda x: np.concatenate([x, np.ones((n, 1), np.float32)], 1)
    y = lambda: rng.integers(10, size=n).astype(np.int32)
    x = one(part())
    return Corrupted(x, y(), y() < 5, one(part()), y(), x[:10], y()[:10])


def reads(S):
    """2 T products of the data matrix with a vector."""
    turn = lambda v, _: (1e-3 * (S["x"] @ v) @ S["x"], None)
    return lax.scan(turn, jnp.ones(S["x"].shape[1]), None, length=T)[0]


def product(A):
    return A @ A


def main():
    config = cleaning.Config()
    xi, lam, S = cleaning.problem(data(), config)
    forward = lambda lam, S: cleaning.f(bx.solve(xi, lam, S, T=T), lam, S)
    programs = {"reads": (jax.jit(reads), (S,)), "forward": (jax.jit(forward), (lam, S))}
    A = jnp.ones((2000, 2000))
    programs["product"] = (jax.jit(product), (A,))
    for text in RULES:
        programs[text] = (
            bx.hypergradient(cleaning.f, xi, bx.extend.parse_rule(text), T=T),
            (lam, S),
        )
    least = dict.fromkeys(programs, float("inf"))
    for _ in range(ROUNDS):
        for name, (program, arguments) in programs.items():
            begin = time.perf_counter()
            jax.block_until_ready(program(*arguments))
            least[name] = min(least[name], time.perf_counter() - begin)
    peak = 2 * A.shape[0] ** 3 / least["product"]
    work = T * 2 * 2 * S["x"].size * 10  # two products with ten columns
    out = {
        "milliseconds": {name: 1000 * t for name, t in least.items()},
        "forward / two reads": least["forward"] / least["reads"],
        "forward / arithmetic at peak": least["forward"] / (work / peak),
        "peak GFLOP/s": peak / 1e9,
        "x forward": {text: least[text] / least["forward"] for text in RULES},
    }
    OUT.parent.mkdir(parents=True, exist_ok=True)
    OUT.write_text(json.dumps(out, indent=1) + "\n")
    print(json.dumps(out, indent=1))


if __name__ == "__main__":
    main()
