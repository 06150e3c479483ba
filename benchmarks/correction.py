"""Corrected truncation where every cheap rule is poor: an MLP, Adam and minibatches inside.

    python benchmarks/correction.py [seeds]

500 of scikit-learn's digits with a weight each, 40 % of their labels replaced; T = 100 steps of
Adam on minibatches of 100; 300 hyper-iterations of Adam. Losses and seconds are relative to full
reverse mode on the same data; the time to its final loss plus 1 % is part of the same run.
"""

import sys
import time
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import optax
from sklearn.datasets import load_digits

import bilevax as bx

N, HIDDEN, ROWS, T, STEPS = 500, 64, 100, 100, 300
RUNS = {
    "full": (bx.Reverse(), None),
    "K = 5": (bx.Reverse(K=5), None),
    "K = 5, corrected": (bx.Reverse(K=5), True),
    "K = 20": (bx.Reverse(K=20), None),
    "K = 20, corrected": (bx.Reverse(K=20), True),
    "Krylov(1, 10)": (bx.Krylov(), None),
    "Krylov(1, 10), corrected": (bx.Krylov(), True),
}
cross_entropy = optax.softmax_cross_entropy_with_integer_labels


def net(w, x):
    return jnp.tanh(x @ w["a"] + w["b"]) @ w["c"] + w["d"]


def g(w, lam, S):
    weighted = jax.nn.sigmoid(lam[S["rows"]]) * cross_entropy(net(w, S["x"]), S["y"])
    return jnp.mean(weighted)


def f(w, lam, S):
    return jnp.mean(cross_entropy(net(w, S["x_val"]), S["y_val"]))


def sample(S, t):
    rows = S["rows"][t]
    return {"rows": rows, "x": S["x"][rows], "y": S["y"][rows]}


def problem(seed: int):
    rng, (x, y) = np.random.default_rng(seed), load_digits(return_X_y=True)
    order = rng.permutation(len(x))
    x, y = np.float32(x[order] / 16), y[order]
    wrong = rng.random(N) < 0.4
    labels = np.where(wrong, rng.integers(0, 10, N), y[:N])
    rows = rng.integers(0, N, (T, ROWS))
    S = dict(x=x[:N], y=labels, x_val=x[N : 2 * N], y_val=y[N : 2 * N], rows=rows)
    normal = lambda *shape: jnp.asarray(rng.normal(size=shape) / shape[0] ** 0.5, jnp.float32)
    w = {
        "a": normal(64, HIDDEN),
        "b": jnp.zeros(HIDDEN),
        "c": normal(HIDDEN, 10),
        "d": jnp.zeros(10),
    }
    xi = bx.Descent(g, bx.constant(w), optax.adam(0.01, eps_root=1e-8), sample)
    return xi, jax.tree.map(jnp.asarray, S)


def follow(xi, S, rule, correct):
    """(seconds since the first device call and value of each hyper-iteration, lam, audits)."""
    clock = []
    see = lambda progress: clock.append((time.perf_counter(), progress.step))
    result = bx.minimize(
        f, xi, rule, jnp.zeros(N), T=T, S=S, steps=STEPS, optimizer=optax.adam(0.1),
        correct=correct, callback=see,
    )  # fmt: skip
    times, steps = np.asarray(clock).T
    seconds = np.interp(np.arange(1, STEPS + 1), steps, times - times[0])
    return (
        seconds,
        result.history["value"],
        result.lam,
        result.history.get("audit", np.zeros(1)).sum(),
    )


def main(seeds: int) -> None:
    warnings.simplefilter("ignore")
    table: dict[str, list] = {name: [] for name in RUNS}
    for seed in range(seeds):
        xi, S = problem(seed)
        exact = bx.hypergradient(f, xi, bx.Reverse(), T=T)
        for name, (rule, correct) in RUNS.items():
            seconds, values, lam, audits = follow(xi, S, rule, correct)
            end = exact(lam, S)
            loss, size = float(end.value), float(optax.tree.norm(end.h))
            if name == "full":
                full, whole, gradient = loss, seconds[-1], size
            there = np.flatnonzero(values <= 1.01 * full)
            first = seconds[there[0]] / whole if len(there) else np.inf
            row = (loss / full - 1, size / gradient, seconds[-1] / whole, first, audits)
            table[name].append(row)
    print(
        f"{seeds} seeds: loss against full, true gradient, seconds, seconds to full + 1 %, audits"
    )
    for name, rows in table.items():
        loss, size, seconds, first, audits = np.mean(rows, axis=0)
        print(f"{name:26} {loss:+.2%}  {size:.2f}  {seconds:.2f}  {first:.2f}  {audits:.0f}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 5)
