"""Task interaction on rows of features, as a bilevel problem (section 4.2.2).

Here descent runs on W itself: rows may be many, and features few.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from .._dynamics import Descent, constant
from .._hypergradient import solve
from .._models.interaction import first_lam, interaction
from .._types import Context, Hyper
from ._model import Rows, _sgd, cross_entropy, linear


def g(W: Array, lam: Hyper, S: Context) -> Array:
    """mean CE + sum_ij C_ij |w_i - w_j|^2 + rho sum_v |w_v|^2."""
    C, rho = interaction(lam)
    x, y = S["train"]
    apart = jnp.sum(jnp.sum(C, axis=1) * jnp.sum(W**2, axis=1)) - jnp.sum(C * (W @ W.T))
    return jnp.mean(cross_entropy(linear(W, x), y)) + 2 * apart + rho * jnp.sum(W**2)


def f(W: Array, lam: Hyper, S: Context) -> Array:
    """Cross-entropy on the validation rows."""
    x, y = S["validation"]
    return jnp.mean(cross_entropy(linear(W, x), y))


class Problem(NamedTuple):
    """Task interaction, ready to be minimised."""

    xi: Descent
    lam: Hyper
    S: Context
    T: int

    def train(self, lam: Hyper, rows: Rows) -> np.ndarray:
        """w_T on these rows."""
        return np.asarray(solve(self.xi, lam, self.S | {"train": rows}, T=self.T))


def problem(
    train: Rows, validation: Rows, classes: int, *, T: int, gamma: float, start: float
) -> Problem:
    opt: Any = jax.tree_util.Partial(_sgd, jnp.asarray(gamma, jnp.float32))
    W = jnp.zeros((classes, train.x.shape[1]), jnp.float32)
    lam = first_lam(classes, start, start, jnp.float32)
    return Problem(Descent(g, constant(W), opt), lam, {"train": train, "validation": validation}, T)
