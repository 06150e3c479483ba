"""Data hypercleaning on MNIST (section 4.2.1): 2000 weights of examples, half of the labels wrong.

    g = mean_i sigmoid(lam_i) CE_i(W) + 0.01 |W|^2,   f = mean CE over 2000 clean examples

The paper stops training after 100 steps. Here it goes on to the end, which single-loop methods
assume; the penalty is ten times the paper's, so that there is an end within reach.
"""

import jax.numpy as jnp

from bilevax.paper.experiments.hypercleaning import program as paper

from ..problem import Problem, curvature, solved, weights

PENALTY = 0.01


def g(W, lam, S):
    return jnp.mean(weights(lam, S) * paper.loss(W, S["x"], S["y"])) + PENALTY * jnp.sum(W**2)


def f(W, lam, S):
    return jnp.mean(paper.loss(W, S["x_val"], S["y_val"]))


def hypercleaning(n: int = 2000) -> Problem:
    data = paper.load(paper.Config(train=n, validation=n))
    S = {k: jnp.asarray(getattr(data, k)) for k in ("x", "y", "x_val", "y_val")} | {"rows": None}
    W, lam = jnp.zeros((10, data.x.shape[1])), jnp.zeros(n)
    L = curvature(g, W, jnp.full(n, 30.0), S)
    return Problem(f, g, lam, W, S, 1 / L, solved)
