"""Momentum inside the MLP, on seeds that `measure.py` does not use: 20 products, one or two pieces.

python benchmarks/krylov/momentum.py
"""

import json

import data
import jax
import jax.numpy as jnp
import problems
from jax.flatten_util import ravel_pytree

import bilevax as bx

RULES = (bx.Krylov(1, 20), bx.Krylov(2, 10))


def main():
    p = problems.multilayer("momentum")
    full, *short = (bx.hypergradient(p.f, p.xi, rule, T=p.T) for rule in (bx.Reverse(), *RULES))
    flat = lambda out: ravel_pytree(out.h)[0]
    rows = []
    for seed in range(10, 18):
        weight = jax.random.normal(jax.random.key(seed), p.lam["weight"].shape)
        lam, S = p.lam | {"weight": weight}, data.digits(seed=seed)
        exact = flat(full(lam, S))
        for rule, hg in zip(RULES, short, strict=True):
            error = jnp.linalg.norm(flat(hg(lam, S)) - exact) / jnp.linalg.norm(exact)
            rows.append({"seed": seed, "rule": repr(rule), "error": float(f"{error:.4g}")})
    (data.RESULTS / "momentum.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
    for rule in RULES:
        errors = sorted(r["error"] for r in rows if r["rule"] == repr(rule))
        print(rule, errors, "median", (errors[3] + errors[4]) / 2)


if __name__ == "__main__":
    main()
