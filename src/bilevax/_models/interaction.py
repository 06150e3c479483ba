"""Task interaction as a bilevel problem (section 4.2.2).

    g = mean CE(W; training) + sum_ij C_ij |w_i - w_j|^2 + rho sum_v |w_v|^2

C = A + A', A = softplus(B), rho = softplus(nu); lam = {B, nu}, tuned on validation data.

`g_rows`, `f_rows`: for many rows with few features, S holds the rows, and descent runs on W.

`dynamics`, `f`: for few rows with many features. From W_0 = 0 every W_t is V_t' X: the gradient
of the loss is R' X, and the penalties mix rows of W. So descent runs on V, of examples x classes,
and needs of the features only their Gram matrix: the same iterates, with one product of m x m
instead of two of m x D in a step.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike
from jaxtyping import Array, Float, Int

from .._dynamics import Dynamics
from .._types import Context, Hyper
from .rows import cross_entropy, linear


class Trial(NamedTuple):
    """One context S, of m training and m validation examples with D features."""

    gram: Float[Array, "m m"]
    """X X', of the training examples."""
    across: Float[Array, "m_val m"]
    """X_val X'."""
    y: Int[Array, " m"]
    y_val: Int[Array, " m_val"]


def interaction(lam: dict) -> tuple[Float[Array, "V V"], Array]:
    """C and rho."""
    A = jax.nn.softplus(lam["B"])
    return A + A.T, jax.nn.softplus(lam["nu"])


def first_lam(
    classes: int, C: float = 1e-3, rho: float = 1e-3, dtype: DTypeLike | None = None
) -> dict[str, Array]:
    """Weak and equal interactions."""
    inverse = lambda x: jnp.log(jnp.expm1(jnp.asarray(x, dtype or jnp.result_type(float))))
    return {"B": jnp.full((classes, classes), inverse(C / 2)), "nu": inverse(rho)}


def g_rows(W: Array, lam: Hyper, S: Context) -> Array:
    C, rho = interaction(lam)
    x, y = S["train"]
    apart = jnp.sum(jnp.sum(C, axis=1) * jnp.sum(W**2, axis=1)) - jnp.sum(C * (W @ W.T))
    return jnp.mean(cross_entropy(linear(W, x), y)) + 2 * apart + rho * jnp.sum(W**2)


def f_rows(W: Array, lam: Hyper, S: Context) -> Array:
    """Cross-entropy on the validation rows."""
    x, y = S["validation"]
    return jnp.mean(cross_entropy(linear(W, x), y))


def dynamics(gamma: float, classes: int) -> Dynamics:
    """Gradient descent on g from W_0 = 0, as an iteration of V with W = V' X."""

    def step(V, lam, S, t):
        C, rho = interaction(lam)
        error = jax.nn.softmax(S.gram @ V) - jax.nn.one_hot(S.y, classes, dtype=V.dtype)
        apart = V * jnp.sum(C, axis=1)[None] - V @ C  # V (D - C), half of sum_j C_ij (v_i - v_j)
        return V - gamma * (error / len(S.y) + 4 * apart + 2 * rho * V)

    start = lambda lam, S: jnp.zeros((len(S.y), classes), S.gram.dtype)
    return Dynamics(start, step)


def f(V: Array, lam: dict, S: Trial) -> Array:
    """Cross-entropy on the validation set."""
    return jnp.mean(cross_entropy(S.across @ V, S.y_val))


def trial(
    x: np.ndarray, y: np.ndarray, rows: np.ndarray, rows_val: np.ndarray
) -> tuple[Trial, np.ndarray]:
    """The context of a split, and the training features that W = V' X needs."""
    X, X_val = x[rows], x[rows_val]
    arrays = (X @ X.T, X_val @ X.T, y[rows], y[rows_val])
    return Trial(*map(jnp.asarray, arrays)), X
