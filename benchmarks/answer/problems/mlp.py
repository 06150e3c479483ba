"""A network with one hidden layer on scikit-learn's digits, 40 % of the labels replaced.

    g = mean_i sigmoid(lam_i) CE_i(w) + 0.001 |w|^2,   f = mean CE over clean examples

Not convex: a lam is judged by 500 steps of Adam from the common start.
"""

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import lax
from sklearn.datasets import load_digits

from ..problem import Problem, curvature, weights

HIDDEN, PENALTY, STEPS = 64, 1e-3, 500
cross_entropy = optax.softmax_cross_entropy_with_integer_labels


def logits(w, x):
    a, c = w[: 65 * HIDDEN].reshape(65, HIDDEN), w[65 * HIDDEN :].reshape(HIDDEN + 1, 10)
    return jnp.tanh(x @ a[1:] + a[0]) @ c[1:] + c[0]


def g(w, lam, S):
    own = cross_entropy(logits(w, S["x"]), S["y"])
    return jnp.mean(weights(lam, S) * own) + PENALTY * jnp.sum(w**2)


def f(w, lam, S):
    return jnp.mean(cross_entropy(logits(w, S["x_val"]), S["y_val"]))


def trained(problem: Problem, lam):
    """The validation loss after STEPS steps of Adam."""
    adam, grad = optax.adam(0.01), jax.grad(problem.g)

    def step(carry, _):
        w, state = carry
        update, state = adam.update(grad(w, lam, problem.S), state)
        return (w + update, state), None

    (w, _), _ = lax.scan(step, (problem.w, adam.init(problem.w)), None, length=STEPS)
    return problem.f(w, lam, problem.S)


def network(n: int = 500) -> Problem:
    rng, (x, y) = np.random.default_rng(0), load_digits(return_X_y=True)
    order = rng.permutation(len(x))[: 2 * n]
    x, y = jnp.asarray(x[order] / 16, jnp.float32), y[order].astype(np.int32)
    given = np.where(rng.random(n) < 0.4, rng.integers(0, 10, n), y[:n]).astype(np.int32)
    S = {"x": x[:n], "y": jnp.asarray(given), "x_val": x[n:], "y_val": jnp.asarray(y[n:])}
    normal = lambda *shape: (rng.normal(size=shape) / shape[0] ** 0.5).ravel()
    w = jnp.asarray(np.concatenate([normal(65, HIDDEN), normal(HIDDEN + 1, 10)]), jnp.float32)
    S |= {"rows": None}
    L = curvature(g, w, jnp.full(n, 30.0), S)
    return Problem(f, g, jnp.zeros(n), w, S, 1 / L, trained)
