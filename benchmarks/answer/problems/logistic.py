"""Logistic regression with a penalty for each feature, on simulated data.

    g = mean_i log(1 + exp(-y_i x_i w)) + sum_j sigmoid(lam_j) w_j^2 / 2,   f: the same, unpenalised

The problem of benchmark_bilevel (ijcnn1, covtype), whose data are not part of any package; and
bounded penalties instead of its exp(lam_j), so that one inner step size is right for every lam.
25 of 500 features matter. In `groups`, 25 neighbours share a penalty: 20 hyperparameters.
"""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from ..problem import Problem, curvature, solved

FEATURES, USEFUL, GROUPS = 500, 25, 20


def loss(w, x, y):
    return jnp.mean(jax.nn.softplus(-y * (x @ w)))


def g(share, w, lam, S):
    each = jnp.repeat(jax.nn.sigmoid(lam), share)
    return loss(w, S["x"], S["y"]) + jnp.sum(each * w**2) / 2


def f(w, lam, S):
    return loss(w, S["x_val"], S["y_val"])


def data(n: int, seed: int = 0):
    """Independent features, the useful ones first, and labels that follow them with noise."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(2 * n, FEATURES))
    truth = np.zeros(FEATURES)
    truth[:USEFUL] = rng.normal(size=USEFUL)
    y = np.where(rng.random(2 * n) < 1 / (1 + np.exp(-x @ truth)), 1, -1)
    x, y = jnp.asarray(x, jnp.float32), jnp.asarray(y, jnp.float32)
    return {"x": x[:n], "y": y[:n], "x_val": x[n:], "y_val": y[n:], "rows": None}


def penalties(n: int = 2000, count: int = FEATURES) -> Problem:
    S, w, own = data(n), jnp.zeros(FEATURES), partial(g, FEATURES // count)
    L = curvature(own, w, jnp.full(count, 30.0), S)
    return Problem(f, own, jnp.full(count, -3.0), w, S, 1 / L, solved)


def groups(n: int = 2000) -> Problem:
    return penalties(n, GROUPS)
