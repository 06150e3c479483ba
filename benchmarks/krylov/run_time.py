"""A whole hypercleaning run by each rule: where it ends, and what an iteration costs.

100 hyper-iterations of Adam(0.1) on lam from 0, the rules taking turns in one process. Cost
is the time of one hypergradient over the time of the forward pass alone (100 steps and f),
compilation apart: the ratio of the fastest times, and of the medians. Reverse() itself is
timed now and then; its run is the one that `points.py` keeps.

    python benchmarks/krylov/run_time.py --data DIR
"""

import json
import statistics
import time
import warnings

import data
import jax
import jax.numpy as jnp
import optax
import points
import problems
from jax import lax

import bilevax as bx

ITERATIONS = 100
RULES = {
    "Reverse(K=5)": bx.Reverse(K=5),
    "Krylov(2, 4)": bx.Krylov(2, 4),
    "Krylov(1, 10)": bx.Krylov(1, 10),
    "AdaptiveKrylov(0.3)": bx.AdaptiveKrylov(0.3),
}


def forward_pass(problem):
    """The inner loop and f, nothing else."""
    xi, T = problem.xi, problem.T

    def run(lam, S):
        step = lambda t, s: xi.advance(s, lam, S, t)
        return problem.f(xi.read(lax.fori_loop(0, T, step, xi.start(lam, S))), lam, S)

    return jax.jit(run)


def timed(program, *args):
    begin = time.perf_counter()
    out = jax.block_until_ready(program(*args))
    return out, time.perf_counter() - begin


def main():
    folder = data.arguments(__doc__).parse_args().data
    warnings.simplefilter("ignore", bx.ToleranceWarning)
    problem, S = problems.hypercleaning(), data.noisy_mnist(folder)
    forward, adam = forward_pass(problem), optax.adam(0.1)
    estimate = lambda rule: bx.hypergradient(problem.f, problem.xi, rule, T=problem.T)
    full, programs = estimate(bx.Reverse()), {k: estimate(r) for k, r in RULES.items()}
    for program in (forward, full, *programs.values()):
        jax.block_until_ready(program(problem.lam, S))
    lams = dict.fromkeys(RULES, problem.lam)
    states = {k: adam.init(problem.lam) for k in RULES}
    times = {k: [] for k in ("forward", "Reverse()", *RULES)}
    products = {k: [] for k in RULES}
    for i in range(ITERATIONS):
        times["forward"].append(timed(forward, lams["Krylov(2, 4)"], S)[1])
        if i % 10 == 0:
            times["Reverse()"].append(timed(full, lams["Krylov(2, 4)"], S)[1])
        for name, program in programs.items():
            out, seconds = timed(program, lams[name], S)
            times[name].append(seconds)
            products[name].append(int(out.report.get("products", 5)))
            update, states[name] = adam.update(out.h, states[name])
            lams[name] = optax.apply_updates(lams[name], update)
    lams["Reverse()"] = jnp.asarray(points.hypercleaning_path(folder)[ITERATIONS])
    best = float(forward(lams["Reverse()"], S))
    report = {"forward_ms": round(min(times["forward"]) * 1e3, 1)}
    for name, lam in lams.items():
        value = float(forward(lam, S))
        report[name] = {
            "final_loss": round(value, 6),
            "excess_percent": round(100 * (value / best - 1), 3),
            "time_ratio": round(min(times[name]) / min(times["forward"]), 3),
            "median_ratio": round(
                statistics.median(times[name]) / statistics.median(times["forward"]), 3
            ),
        }
        if name in products:
            report[name]["mean_products"] = statistics.fmean(products[name])
        print(name, report[name])
    (data.RESULTS / "run_time.json").write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
