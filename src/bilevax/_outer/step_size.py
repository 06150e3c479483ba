"""The two step-size habits of the paper (section 4), as optax schedules and optimizers."""

from typing import NamedTuple

import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, PyTree

from .. import _tree as tree
from .._errors import check as base
from .._types import Hyper


def inverse_sqrt_schedule(eta_0: float) -> optax.Schedule:
    """eta_tau = eta_0 / sqrt(tau), tau = 1, 2, ...: the step size of Theorem 3.3.

    **Arguments:**

    - `eta_0`: the first step size.

    **Returns:**

    An optax schedule, for the learning rate of any optimizer.

    !!! example

        >>> import bilevax as bx, optax
        >>> optimizer = optax.sgd(bx.inverse_sqrt_schedule(0.5))
        >>> [round(float(bx.inverse_sqrt_schedule(0.5)(count)), 3) for count in (0, 1, 3)]
        [0.5, 0.354, 0.25]
    """
    base.positive(eta_0, "eta_0", "give the first step size, as in inverse_sqrt_schedule(0.1)")
    return lambda count: eta_0 / jnp.sqrt(jnp.asarray(count + 1, jnp.result_type(float)))


class _First(NamedTuple):
    scale: Float[Array, ""]
    """0 before the first update."""
    inner: PyTree


def scale_first_update(
    optimizer: optax.GradientTransformation, norm: float
) -> optax.GradientTransformationExtraArgs:
    """An optimizer scaled once, such that its first update has a given norm.

    Hypergradients of different rules differ in length. With this optimizer, runs that you compare
    begin with steps of the same length, as in the paper.

    **Arguments:**

    - `optimizer`: any optax optimizer; only the ratio of its step sizes matters.
    - `norm`: the Euclidean norm of its first update, over all leaves of lam.

    **Returns:**

    An optax optimizer.

    !!! example

        >>> import bilevax as bx, jax.numpy as jnp, optax
        >>> optimizer = bx.scale_first_update(optax.sgd(bx.inverse_sqrt_schedule(1.0)), norm=0.6)
        >>> update, _ = optimizer.update(jnp.array([3.0, 4.0]), optimizer.init(jnp.zeros(2)))
        >>> print(f"{jnp.linalg.norm(update):.3f}")
        0.600
    """
    base.positive(norm, "norm", "give the length of the first update, as in norm=0.6")
    optimizer = optax.with_extra_args_support(optimizer)

    def init(lam: Hyper) -> _First:
        return _First(jnp.zeros((), tree.widest(lam)), optimizer.init(lam))

    def update(h, state, lam=None, **extra):
        updates, inner = optimizer.update(h, state.inner, lam, **extra)
        length = tree.norm(updates).astype(state.scale.dtype)
        first = jnp.where(length > 0, norm / tree.positive(length), 0.0)  # of 0, wait for another
        scale = jnp.where(state.scale > 0, state.scale, first)
        return tree.scale(scale, updates), _First(scale, inner)

    return optax.GradientTransformationExtraArgs(init, update)  # pyright: ignore
