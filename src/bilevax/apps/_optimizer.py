"""Outer optimizers with settings in arrays: other values run the program that is there."""

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import optax
from jax.tree_util import Partial

Make = Callable[..., optax.GradientTransformation]


def with_arrays(make: Make, *settings: Any) -> optax.GradientTransformationExtraArgs:
    """make(*settings), made again wherever it is used; `make` is a function of a module.

    `optax.adam(0.1)` is a closure: another one, even of the same rate, compiles again.
    """
    return optax.GradientTransformationExtraArgs(
        Partial(_init, make, settings), Partial(_update, make, settings)
    )


def adam(rate: float) -> optax.GradientTransformationExtraArgs:
    return with_arrays(optax.adam, jnp.asarray(rate, jnp.float32))


def _init(make: Make, settings: tuple, params: Any) -> Any:
    return make(*settings).init(params)


def _update(
    make: Make, settings: tuple, updates: Any, state: Any, params: Any = None, **more: Any
) -> Any:
    return optax.with_extra_args_support(make(*settings)).update(updates, state, params, **more)
