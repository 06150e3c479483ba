"""Whether the claim of `Descent(symmetric=True)` holds: both products, compared at a few states."""

import dataclasses

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float

from .. import _tree as tree
from .._compile import weak_jit
from .._dynamics import AbstractDynamics, Descent
from .._loop import unroll
from .._types import Context, Hyper, State, Time

GRADIENT = optax.GradientTransformation(
    lambda params: optax.EmptyState(),
    lambda updates, state, params=None: (optax.tree.sub(updates, params), state),
)
"""The step w -> grad g(w): A and B are the second derivatives of g, whatever the step size is."""


def asymmetry(xi: AbstractDynamics, lam: Hyper, S: Context, T: int) -> float | None:
    """How far apart the products are, relative to their size; None if as far as rounding."""
    loop = xi.loop()
    if not isinstance(loop, Descent) or not loop.symmetric:
        return None
    apart, tolerance = _apart(loop, xi.mu(lam, S), S, T)
    return float(apart) if apart > tolerance else None


@weak_jit
def _apart(xi: Descent, lam: Hyper, S: Context, T: int) -> tuple[Array, float]:
    """The largest difference at s_0, in the middle and before the last step; what rounding does."""
    first = xi.start(lam, S)
    at = lambda t: unroll(xi, lam, S, first, 0, t)
    apart = [_difference(xi, lam, S, at(t), t) for t in sorted({0, T // 2, T - 1})]
    eps = [float(jnp.finfo(a.dtype).eps) for a in jax.tree.leaves((tree.inexact(first), lam))]
    return jnp.max(jnp.stack(apart)), max(eps) ** 0.5


def _difference(xi: Descent, lam: Hyper, S: Context, s: State, t: Time) -> Float[Array, ""]:
    probe = dataclasses.replace(xi.at(xi.read(s)), opt=GRADIENT)
    s = probe.start(lam, S)
    alpha = tree.normal(jax.random.key(0), tree.inexact(s))
    products = [
        dataclasses.replace(probe, symmetric=mixed).advance_vjp(s, lam, S, t)(alpha)
        for mixed in (True, False)
    ]
    apart = lambda a, b: tree.norm(optax.tree.sub(a, b)) / tree.positive(tree.norm(b))
    A, B = (apart(*pair) for pair in zip(*products, strict=True))
    return jnp.maximum(A, B.astype(A.dtype))
