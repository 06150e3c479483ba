"""How far a Krylov space grows when its rank follows from a tolerance."""

import jax
import jax.numpy as jnp
import optax
from jax import lax
from jaxtyping import Array, Float, Int

from ... import _tree as tree
from ..._types import Hyper, Product
from .arnoldi import Space, extend, no_swing, powers

LEAST = 3
"""The least rank: below it the decay of the coefficients says nothing."""


def grow_to(
    product: Product,
    space: Space,
    h: Hyper,
    first: Int[Array, ""],
    R: Int[Array, ""],
    T: int,
    tol: Float[Array, ""],
    most: Int[Array, ""],
) -> Space:
    """At most so many Arnoldi steps, until the last vector no longer matters.

    Two tests: what the last vector may add to h in this piece; and how much of the cotangent
    it carries, each step counting with the number of steps that are still to come.
    """

    def go_on(carry):
        space, done = carry
        return (space.rank < most) & ~space.closed & ~done

    def body(carry):
        space = extend(carry[0], product)
        C = powers(space, R, T, no_swing(space, h), keep=True).each
        i = jnp.arange(T, dtype=jnp.int32)
        only = lambda x: jnp.where(i < R, x, 0.0)
        last, sizes = only(jnp.abs(C[:T, space.rank])), jnp.linalg.norm(C, axis=1)
        lost = jnp.sum(last) * jnp.max(jax.vmap(tree.norm)(space.BQ)).astype(last.dtype)
        kept = tree.norm(optax.tree.add(h, _sum_up(space, C, R))).astype(last.dtype)
        ahead = jnp.maximum(first + R - 1 - i, 0).astype(last.dtype)
        carried = jnp.sum(only(sizes[:T])) + first.astype(last.dtype) * sizes[T]
        done = (lost <= tol * kept) & (jnp.sum(last * ahead) <= tol * carried)
        return space, done & (space.rank >= LEAST) & (kept > 0)

    return lax.while_loop(go_on, body, (space, R < 1))[0]


def _sum_up(space: Space, C: Float[Array, "T+1 m+1"], R: Int[Array, ""]) -> Hyper:
    """B (I + A + ... + A^{R-1}) a, from the B Q_j."""
    inside = (jnp.arange(C.shape[0] - 1, dtype=jnp.int32) < R)[:, None]
    return tree.combine(jnp.sum(jnp.where(inside, C[:-1, :-1], 0.0), axis=0), space.BQ)
