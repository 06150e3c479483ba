"""How far `bx.forecast` is off: predicted against measured time, relative to the forward pass.

    python benchmarks/forecast.py [--seconds 8] [--fit]

Measured are the compiled programs, in turns, the fastest of many calls, so that what else the
machine does hits all alike; on one thread, and where a forward pass takes longer than SHORT, by
the clock of the process and not that of the wall, for the same reason. The first problems are not
among those that the prices of `diagnostics/_program.py` were fitted to; `--fit` fits them again to
the others.
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
from bilevax.diagnostics._forecast import _forward
from bilevax.diagnostics._program import PRICES, work

OUT = pathlib.Path(__file__).parent.parent / "results" / "forecast.json"
SHORT = 4e-3
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


FITTED = {
    "ridge, 30 x 6": lambda: problems.ridge(T=500),
    "ridge, 2000 x 100": lambda: problems.ridge(n=2000, D=100, T=200),
    "logistic, 40 x 5": lambda: problems.logistic(T=200),
    "logistic, 5000 x 50": lambda: problems.logistic(n=5000, D=50, T=100),
    "reweighting, 60 x 4": lambda: problems.reweighting(T=200),
    "reweighting, 2000 x 200": lambda: problems.reweighting(n=2000, D=200, C=10, T=100),
    "representation, 30 x 6": lambda: problems.hyper_representation(T=100),
    "representation, 500 x 100": lambda: problems.hyper_representation(500, 100, 50, 10, T=100),
    "quadratic, 5": lambda: problems.quadratic(T=200),
    "quadratic, 500": lambda: problems.quadratic(M=500, T=200),
    "toy": problems.toy,
}
NEW = {
    "hypercleaning": cleaning,
    "network": lambda: network(optax.sgd(0.1)),
    "network, Adam": lambda: network(optax.adam(1e-2, eps_root=1e-8)),
    "network, minibatches": lambda: network(optax.sgd(0.1), problems.minibatch(64)),
    "ridge, momentum": lambda: problems.ridge(300, 20).with_inner(optax.sgd(0.1, 0.9), T=300),
    "quadratic, 1500": lambda: problems.quadratic(M=1500, T=60),
}


def programs(p):
    """Compiled programs by the name of the rule, and their arguments."""
    few = sum(a.size for a in jax.tree.leaves(p.lam)) <= 120
    calls = {"forward": (eqx.filter_jit(_forward), (p.f, p.xi, p.lam, p.S, p.T))}
    for rule in RULES:
        if few or not isinstance(rule, bx.Forward):
            calls[repr(rule)] = _checked, (p.f, p.xi, rule, p.lam, p.S, p.T)
    return {k: (fun.lower(*args).compile(), args) for k, (fun, args) in calls.items()}


def fastest(programs, seconds):
    best = {name: [float("inf")] * 2 for name in programs}
    end, rounds = time.perf_counter() + seconds, 0
    while rounds < 4 or (time.perf_counter() < end and rounds < 500):
        rounds += 1
        for name, (program, args) in programs.items():
            begin = time.perf_counter(), time.process_time()
            jax.block_until_ready(program(*args))
            took = time.perf_counter() - begin[0], time.process_time() - begin[1]
            best[name] = list(map(min, best[name], took))
    clock = int(best["forward"][0] > SHORT)
    return {name: both[clock] for name, both in best.items()}


def measure(make, seconds):
    """For each rule: what its program does, and how long it took."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", bx.InvisibleLeafWarning)
        compiled = programs(make())
    best = fastest(compiled, seconds)
    text = lambda name: compiled[name][0].compiled.as_text()
    return {name: {"work": dict(work(text(name))), "seconds": best[name]} for name in compiled}


def compare(record, prices):
    """Predicted and measured time of each rule over that of the forward pass."""
    price = lambda name: sum(prices[k] * n for k, n in record[name]["work"].items())
    return {
        name: {
            "predicted": price(name) / price("forward"),
            "measured": record[name]["seconds"] / record["forward"]["seconds"],
        }
        for name in record
        if name != "forward"
    }


def fit(records):
    """Prices for which the ratios, and loosely the times, come out right."""
    from scipy.optimize import least_squares

    kinds = list(PRICES["cpu"])
    rows = [(x, y["forward"]) for y in records for x in y.values()]
    count = lambda x: [x["work"].get(kind, 0) for kind in kinds]
    A, B = (np.array([count(pair[i]) for pair in rows], float) for i in (0, 1))
    a, b = (np.array([pair[i]["seconds"] for pair in rows]) for i in (0, 1))

    def residual(logs):
        p, q = A @ np.exp(logs), B @ np.exp(logs)
        return np.concatenate([np.log(p / q) - np.log(a / b), 0.3 * np.log(p / a)])

    start = np.log([PRICES["cpu"][kind] for kind in kinds])
    found = least_squares(residual, start, loss="soft_l1", f_scale=0.1)
    return {kind: float(f"{x:.2g}") for kind, x in zip(kinds, np.exp(found.x), strict=True)}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=8, help="spent on each problem")
    parser.add_argument("--fit", action="store_true", help="print prices that fit better")
    args = parser.parse_args()
    records, out = {}, {}
    for name, make in (NEW | FITTED).items():
        records[name] = measure(make, args.seconds)
        out[name] = compare(records[name], PRICES["cpu"])
        print(f"\n{name}{'' if name in FITTED else ' (not fitted to)'}")
        for rule, x in out[name].items():
            error = x["predicted"] / x["measured"] - 1
            mark = "" if abs(error) <= 0.3 else "  more than 30 %"
            line = f"  {rule:28s} predicted {x['predicted']:7.2f}  measured {x['measured']:7.2f}"
            print(f"{line}  {error:+5.0%}{mark}", flush=True)
        OUT.write_text(json.dumps({"ratios": out, "records": records}, indent=1) + "\n")
    errors = [abs(x["predicted"] / x["measured"] - 1) for r in out.values() for x in r.values()]
    within = sum(error <= 0.3 for error in errors)
    print(f"\nwithin 30 %: {within} of {len(errors)}, median error {np.median(errors):.0%}")
    if args.fit:
        print(fit([records[name] for name in FITTED]))


if __name__ == "__main__":
    main()
