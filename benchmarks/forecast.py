"""How far counted operations are from measured time, both relative to the forward pass.

    python benchmarks/forecast.py [--seconds 4]

The forward pass and the rules run in turns on one thread; of each the fastest of many calls counts,
in CPU time, so that whatever else the machine does changes little.
"""

import argparse
import json
import os
import pathlib
import time
import warnings

os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false")

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from overhead import C, D, data, f, g

import bilevax as bx
from bilevax import problems
from bilevax._hypergradient import _checked
from bilevax.diagnostics._flops import count_flops
from bilevax.diagnostics._forecast import _forward

OUT = pathlib.Path(__file__).parent.parent / "results" / "forecast.json"
RULES = [
    bx.Reverse(),
    bx.Reverse(K=1),
    bx.Reverse(K=10),
    bx.Reverse(segment=10),
    bx.Reverse(K=50, segment=7),
    bx.Forward(),
    bx.Neumann(10),
    bx.Krylov(2, 4),
]


def cleaning():
    xi = bx.Descent(g, bx.constant(jnp.zeros((D, C))), optax.sgd(1.0))
    S = data(jax.random.key(0))
    return problems.Problem("hypercleaning", f, xi, jnp.zeros(5000), S, 100)


def network(opt, sample=lambda S, t: S, n=1000, D=50, H=64):
    """Two penalties of a network with one hidden layer."""
    normal = lambda i, *shape: jax.random.normal(jax.random.key(i), shape)
    S = {"train": (normal(0, n, D), normal(1, n)), "val": (normal(2, n, D), normal(3, n))}
    S["key"] = jax.random.key(4)
    w_0 = {"in": normal(5, D, H) / 7, "bias": jnp.zeros(H), "out": normal(6, H) / 8}
    loss = lambda w, x, y: jnp.mean((jnp.tanh(x @ w["in"] + w["bias"]) @ w["out"] - y) ** 2)

    def inner(w, lam, S):
        penalty = jnp.exp(lam) @ jnp.stack([jnp.sum(w["in"] ** 2), jnp.sum(w["out"] ** 2)])
        return loss(w, *S["train"]) + penalty

    xi = bx.Descent(inner, bx.constant(w_0), opt, sample)
    outer = lambda w, lam, S: loss(w, *S["val"])
    return problems.Problem("network", outer, xi, jnp.full(2, -3.0), S, 100)


PROBLEMS = {
    "hypercleaning": cleaning,
    "network": lambda: network(optax.sgd(0.1)),
    "network, Adam": lambda: network(optax.adam(1e-2, eps_root=1e-8)),
    "network, minibatches": lambda: network(optax.sgd(0.1), problems.minibatch(64)),
    "ridge, 2000 x 100": lambda: problems.ridge(n=2000, D=100, T=200),
    "reweighting, 2000 x 200": lambda: problems.reweighting(n=2000, D=200, C=10, T=100),
    "quadratic, 500": lambda: problems.quadratic(M=500, T=200),
    "ridge, 30 x 6": lambda: problems.ridge(T=500),
    "toy": problems.toy,
}


def functions(p):
    """The forward pass and the rules, as functions of (lam, S)."""
    few = sum(a.size for a in jax.tree.leaves(p.lam)) <= 120
    rules = [rule for rule in RULES if few or not isinstance(rule, bx.Forward)]
    of = lambda rule: lambda lam, S: _checked(p.f, p.xi, rule, lam, S, p.T, False)
    forward = eqx.filter_jit(_forward)
    return {"forward": lambda lam, S: forward(p.f, p.xi, lam, S, p.T)} | {
        repr(rule): of(rule) for rule in rules
    }


def fastest(functions, args, seconds):
    """CPU seconds of the fastest call of each."""
    best = dict.fromkeys(functions, float("inf"))
    end, rounds = None, 0
    while rounds < 5 or (time.perf_counter() < end and rounds < 500):
        for name, fun in functions.items():
            begin = time.process_time()
            jax.block_until_ready(fun(*args))
            best[name] = min(best[name], time.process_time() - begin)
        end = end or time.perf_counter() + seconds  # the first round compiles
        rounds += 1
    return best


def compare(p, seconds):
    """For each rule: operations and time over those of the forward pass."""
    calls, args = functions(p), (p.lam, p.S)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", bx.InvisibleLeafWarning)
        flops = {name: count_flops(lambda x: fun(*x), args).flops for name, fun in calls.items()}  # noqa: B023
        took = fastest(calls, args, seconds)
    over = lambda x, name: round(x[name] / x["forward"], 3)
    rules = [name for name in calls if name != "forward"]
    return {rule: {"counted": over(flops, rule), "measured": over(took, rule)} for rule in rules}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=4, help="spent on each problem")
    args = parser.parse_args()
    out = {}
    for name, make in PROBLEMS.items():
        out[name] = compare(make(), args.seconds)
        print(f"\n{name}")
        for rule, x in out[name].items():
            error = x["counted"] / x["measured"] - 1
            line = f"  {rule:28s} counted {x['counted']:7.2f}  measured {x['measured']:7.2f}"
            print(f"{line}  {error:+5.0%}", flush=True)
        OUT.write_text(json.dumps(out, indent=1) + "\n")
    errors = [abs(x["counted"] / x["measured"] - 1) for r in out.values() for x in r.values()]
    within = sum(error <= 0.3 for error in errors)
    print(f"\nwithin 30 %: {within} of {len(errors)}, median error {np.median(errors):.0%}")


if __name__ == "__main__":
    main()
