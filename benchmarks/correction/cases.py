"""What is run with and without a correction, and by which rules."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

import bilevax as bx
from bilevax.paper.experiments.hypercleaning import program as cleaning

HIDDEN, ROWS, N = 64, 100, 500


class Case(NamedTuple):
    f: Any
    xi: bx.Descent
    lam: jax.Array
    S: dict
    steps: int
    """Hyper-iterations."""
    optimizer: optax.GradientTransformation
    T: int = 100
    share: float = bx.Correction().share
    """Of a corrected run's time, for audits."""


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


def adam(seed: int, data: str | None) -> Case:
    """Where every cheap rule is poor: an MLP, with Adam and minibatches of 100 inside.

    500 of scikit-learn's digits have a weight each; 40 % of their labels are replaced.
    """
    from sklearn.datasets import load_digits

    rng, (x, y) = np.random.default_rng(seed), load_digits(return_X_y=True)
    order = rng.permutation(len(x))
    x, y = np.float32(x[order] / 16), y[order]
    labels = np.where(rng.random(N) < 0.4, rng.integers(0, 10, N), y[:N])
    rows = rng.integers(0, N, (100, ROWS))
    S = dict(x=x[:N], y=labels, x_val=x[N : 2 * N], y_val=y[N : 2 * N], rows=rows)
    normal = lambda *shape: jnp.asarray(rng.normal(size=shape) / shape[0] ** 0.5, jnp.float32)
    w = dict(a=normal(64, HIDDEN), b=jnp.zeros(HIDDEN), c=normal(HIDDEN, 10), d=jnp.zeros(10))
    xi = bx.Descent(g, bx.constant(w), optax.adam(0.01, eps_root=1e-8), sample)
    return Case(f, xi, jnp.zeros(N), jax.tree.map(jnp.asarray, S), 300, optax.adam(0.1))


def hypercleaning(n: int, steps: int, seed: int, data: str | None) -> Case:
    """The paper's hypercleaning of MNIST, with n + n images."""
    config = cleaning.Config(train=n, validation=n, seed=seed)
    xi, lam, S = cleaning.problem(cleaning.load(config, data), config)
    first = config.first * len(lam) ** 0.5
    adam = bx.scale_first_update(optax.adam(1.0), first)
    return Case(cleaning.f, xi, lam, S, steps, adam, share=0.2)


CASES = {
    "adam": adam,
    "small": lambda seed, data: hypercleaning(1000, 300, seed, data),
    "paper": lambda seed, data: hypercleaning(5000, 1000, seed, data),
}
RULES = {
    "adam": (bx.Reverse(K=5), bx.Reverse(K=20), bx.Krylov()),
    "small": (bx.Reverse(K=1), bx.Reverse(K=5), bx.Krylov(2, 4)),
    "paper": (bx.Reverse(K=1), bx.Reverse(K=5), bx.Krylov(2, 4)),
}
