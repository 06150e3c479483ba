"""Does AdaptiveKrylov know how wrong it is?

Over the small problems of `bilevax.problems`, five optimizers with the learning rate as a
further hyperparameter, horizons, minibatches, rates and seeds: the error that the rule
reports against the true relative error of the pullback (h without grad_lam f). The points of
`measure.py` are added from its records. A miss is a true error above the reported one.

    python benchmarks/krylov/coverage.py [--each N] [--first-seed N]
"""

import json
import warnings

import data
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.flatten_util import ravel_pytree

import bilevax as bx
from bilevax import problems as zoo

OUT = data.RESULTS / "coverage.jsonl"
SEEDS, RTOL = 5, 0.1
SLOW, FAST = (0.02, 0.1, 0.3, 0.6), (0.001, 0.003, 0.01, 0.03)
OPTIMIZERS = {
    "sgd": (optax.sgd, SLOW),
    "momentum": (lambda rate: optax.sgd(rate, momentum=0.9), tuple(r / 10 for r in SLOW)),
    "nesterov": (
        lambda rate: optax.sgd(rate, momentum=0.9, nesterov=True),
        tuple(r / 10 for r in SLOW),
    ),
    "adam": (lambda rate: optax.adam(rate, eps_root=1e-8), FAST),
    "rmsprop": (lambda rate: optax.rmsprop(rate, eps=1e-6), FAST),
}
PROBLEMS = (zoo.ridge, zoo.logistic, zoo.reweighting, zoo.hyper_representation)
HORIZONS = ((50, False), (100, False), (20, True), (200, False), (100, True))
"""T and whether steps see minibatches; each problem and optimizer gets one, or --each of them."""


def with_rate(problem, make, T: int, minibatch: bool):
    """The problem with lam = (own, log rate), so that one program serves all rates."""
    g, start = problem.xi.g, problem.xi.init
    more = {"sample": zoo.minibatch(16)} if minibatch else {}
    xi = bx.Descent(
        lambda w, lam, S: g(w, lam[0], S),
        lambda lam, S: start(lam[0], S),
        lambda lam: make(jnp.exp(lam[1])),
        **more,
    )
    return lambda w, lam, S: problem.f(w, lam[0], S), xi


def pullback(f, xi, rule, T: int):
    def run(lam, S):
        out = bx.hypergradient(f, xi, rule, T=T)(lam, S)
        direct = jax.grad(f, 1)(out.w, lam, S)
        return ravel_pytree(jax.tree.map(jnp.subtract, out.h, direct))[0], out.report

    return jax.jit(jax.vmap(run))


def batch(make_problem, rates, seeds: range):
    """lam and S for every seed and rate, stacked."""
    cases = []
    for seed in seeds:
        p = make_problem(seed=seed)
        key = jax.random.key(seed)
        moved = jax.tree.map(lambda a: a + 0.5 * jax.random.normal(key, a.shape), p.lam)  # noqa: B023
        cases += [((moved, jnp.log(jnp.float32(rate))), p.S) for rate in rates]
    return jax.tree.map(lambda *a: jnp.stack(a), *cases)


def study(make_problem, optimizer: str, T: int, minibatch: bool, seeds: range) -> list[dict]:
    make, rates = OPTIMIZERS[optimizer]
    problem = make_problem()
    f, xi = with_rate(problem, make, T, minibatch)
    lam, S = batch(make_problem, rates, seeds)
    exact, _ = pullback(f, xi, bx.Reverse(), T)(lam, S)
    h, report = pullback(f, xi, bx.AdaptiveKrylov(RTOL), T)(lam, S)
    true = jnp.linalg.norm(h - exact, axis=1) / jnp.linalg.norm(exact, axis=1)
    rows = []
    for i, error in enumerate(np.asarray(true, float)):
        row = {"problem": problem.name, "optimizer": optimizer, "T": T, "minibatch": minibatch}
        row |= {
            "rate": round(rates[i % len(rates)], 4),
            "seed": seeds[i // len(rates)],
            "true": float(error),
        }
        row |= {"estimate": float(report["error"][i]), "rtol": RTOL}
        rows.append(row | {k: int(report[k][i]) for k in ("products", "pieces", "head")})
    return rows


def measured() -> list[dict]:
    """The MNIST, Omniglot and multilayer points."""
    records = data.RESULTS / "records.jsonl"
    lines = map(json.loads, records.read_text().splitlines()) if records.exists() else ()
    rows = [r for r in lines if r["rule"].startswith("AdaptiveKrylov") and "estimate" in r]
    keep = ("problem", "point", "products", "pieces", "head", "estimate")
    return [
        {k: r[k] for k in keep} | {"true": r["pull_error"], "rtol": float(r["rule"].split()[1])}
        for r in rows
    ]


def summary(name: str, rows: list[dict]) -> None:
    for title, part in ((name, rows), (f"{name}, < 0.5", [r for r in rows if r["estimate"] < 0.5])):
        true, estimate = (np.array([r[k] for r in part]) for k in ("true", "estimate"))
        if len(part):
            share, ratio = np.mean(true <= estimate), np.median(estimate / np.maximum(true, 1e-6))
            print(f"{title:28s} {len(part):4d} cases  covered {share:.3f}  ratio {ratio:.1f}")


def main():
    parser = data.arguments(__doc__)
    parser.add_argument("--each", type=int, default=1)
    parser.add_argument("--first-seed", type=int, default=0)
    args = parser.parse_args()
    each, seeds = args.each, range(args.first_seed, args.first_seed + SEEDS)
    warnings.simplefilter("ignore")
    rows, turn = measured(), 0
    for make_problem in PROBLEMS:
        for optimizer in OPTIMIZERS:
            for i in range(each):
                horizon = HORIZONS[(turn + i) % len(HORIZONS)]
                try:
                    rows += study(make_problem, optimizer, *horizon, seeds)
                except (FloatingPointError, RuntimeError) as error:  # a loop that diverged
                    print("skipped:", str(error).strip()[:100])
            turn += 2 if optimizer == "sgd" else 1
            print(make_problem.__name__, optimizer, flush=True)
            OUT.write_text("".join(json.dumps(r) + "\n" for r in rows))
    summary("all", rows)
    for key in ("problem", "optimizer"):
        for value in sorted({r[key] for r in rows if key in r}):
            summary(value, [r for r in rows if r.get(key) == value])
    summary("minibatches", [r for r in rows if r.get("minibatch")])
    summary("no minibatches", [r for r in rows if not r.get("minibatch")])
    print("misses:")
    for row in rows:
        if not row["true"] <= row["estimate"]:
            print(json.dumps(row))


if __name__ == "__main__":
    main()
