"""Outer optimizers with settings in arrays: other values run the program that is there."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import optax
from jaxtyping import PyTree


class _Init(eqx.Module):
    make: Callable[..., optax.GradientTransformation]
    settings: tuple

    def __call__(self, lam: PyTree) -> Any:
        return self.make(*self.settings).init(lam)


class _Update(eqx.Module):
    make: Callable[..., optax.GradientTransformation]
    settings: tuple

    def __call__(self, h: PyTree, state: Any, lam: PyTree = None, **more: Any) -> Any:
        return optax.with_extra_args_support(self.make(*self.settings)).update(
            h, state, lam, **more
        )


def with_arrays(
    make: Callable[..., optax.GradientTransformation], *settings: Any
) -> optax.GradientTransformationExtraArgs:
    """make(*settings), made again wherever it is used; `make` is a function of a module.

    `optax.adam(0.1)` is a closure: another one, even of the same rate, compiles again.
    """
    return optax.GradientTransformationExtraArgs(_Init(make, settings), _Update(make, settings))


def adam(rate: float) -> optax.GradientTransformationExtraArgs:
    return with_arrays(optax.adam, jnp.asarray(rate, jnp.float32))
