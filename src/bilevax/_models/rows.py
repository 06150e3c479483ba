"""Linear classifiers of rows, and descent whose step size is an array."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int

from .._dynamics import Descent, all_of, constant
from .._types import Hyper, Objective, Params


class Rows(NamedTuple):
    """Features and the numbers of their classes."""

    x: Float[Array, "n d"]
    y: Int[Array, " n"]


def linear(w: Any, x: Any) -> Any:
    """Logits; w is (classes, features), twice as fast on a CPU as its transpose."""
    return x @ w.T


def cross_entropy(logits: Float[Array, "n c"], y: Int[Array, " n"]) -> Float[Array, " n"]:
    return optax.softmax_cross_entropy_with_integer_labels(logits, y)


def descent(g: Objective, w: Params, gamma: Any, sample: Any = all_of) -> Descent:
    """Gradient descent on g from w. Every step size runs the same program: it is an array."""
    rate = jnp.asarray(gamma, jnp.float32)
    return Descent(g, constant(w), jax.tree_util.Partial(_sgd, rate), sample)


def _sgd(gamma: Array, lam: Hyper) -> optax.GradientTransformation:
    del lam
    return optax.sgd(gamma)
