"""One piece of the horizon: the way back over R steps with A and B frozen.

a -> A^R a ,    h -> h + B (I + A + ... + A^{R-1}) a
"""

from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp
import optax
from jax import lax
from jaxtyping import Array, Bool, Float, Int, PyTree

from ... import _tree as tree
from ..._dynamics import AbstractDynamics
from ..._types import Context, Hyper, Product, State, Time
from .arnoldi import Powers, Space, Swing, begin, no_swing, powers, ritz
from .swing import direction, measured, middle


class Frozen(NamedTuple):
    """The loop, and the iterates at which its steps may be linearised."""

    xi: AbstractDynamics
    lam: Hyper
    S: Context
    at: Callable[[Time], State]
    rank: int
    """The most products in a piece."""
    longest: int
    """The most steps in a piece."""
    keep_B: bool
    """Whether the space keeps B q; otherwise one more product finds B of the sum."""

    def product(self, t: Time) -> Product:
        return self.xi.advance_vjp(self.at(t), self.lam, self.S, t)


class Crossing(NamedTuple):
    """What a piece does to the cotangent, and what it adds to h."""

    alpha: PyTree
    dh: Hyper
    lost: Float[Array, ""]
    """How much of dh the last vector of the space, and modes that were held back, may change."""
    doubt: Float[Array, ""]
    clipped: Bool[Array, ""]
    products: Int[Array, ""]
    space: Space
    powers: Powers


class Sums(NamedTuple):
    """Where the way back over the pieces stands, and what was lost on it."""

    alpha: PyTree
    h: Hyper
    lost: Float[Array, ""]
    doubt: Float[Array, ""]
    clipped: Bool[Array, ""]
    products: Int[Array, ""]
    evidence: PyTree = None

    @classmethod
    def first(cls, alpha: PyTree, h: Hyper, products: Int[Array, ""]) -> "Sums":
        zero = jnp.zeros((), tree.widest(alpha, jnp.float32))
        return cls(alpha, h, zero, zero, jnp.asarray(False), products)

    def after(self, new: Crossing, lost: Float[Array, ""], products: Int[Array, ""]) -> "Sums":
        return self._replace(
            alpha=new.alpha,
            h=optax.tree.add(self.h, new.dh),
            lost=self.lost + lost,
            doubt=new.doubt,
            clipped=self.clipped | new.clipped,
            products=self.products + products,
        )


def cross(
    frozen: Frozen,
    node: Time,
    R: Int[Array, ""],
    later: Int[Array, ""],
    alpha: PyTree,
    doubt: Float[Array, ""],
    build: Callable[[Space, Product], Space],
    keep: bool = False,
) -> Crossing:
    """Back over a piece of R steps whose node lies `later` steps before its end.

    `doubt` is the part of alpha that holding back in later pieces may have changed.
    """
    space = begin(alpha, frozen.lam, frozen.rank, frozen.keep_B)
    space, swing, at_node, extra = _explore(frozen, space, node, R, later, build)
    walked = powers(space, R, frozen.longest, swing, keep)
    if frozen.keep_B:
        dh = tree.combine(walked.total[:-1], space.BQ)
        dh = optax.tree.add(dh, tree.scale(walked.swung @ swing.y, swing.Ey))
    else:  # rank cotangents of lam would outweigh the states
        dh = at_node(tree.combine(walked.total, space.Q))[1]
    size = tree.norm(dh).astype(space.H.dtype)
    missing = (jnp.abs(walked.total[space.rank]) + walked.held) / tree.norm(walked.total)
    lost = size * jnp.where(space.length > 0, missing + doubt, 0.0)
    end = tree.combine(walked.end, space.Q)
    doubt = doubt + walked.doubt
    return Crossing(end, dh, lost, doubt, walked.clipped, space.rank + extra, space, walked)


def _explore(
    frozen: Frozen, space: Space, node: Time, R: Int[Array, ""], later: Int[Array, ""], build
) -> tuple[Space, Swing, Product, Int[Array, ""]]:
    """The Krylov space of a piece; where the loop swings, one more product measures the swing."""
    xi, lam, S, s = frozen.xi, frozen.lam, frozen.S, frozen.at(node)
    linearise = lambda s: xi.advance_vjp(s, lam, S, node)
    if not frozen.keep_B:
        at_node = linearise(s)
        space = build(space, at_node)
        return space, no_swing(space, lam), at_node, jnp.ones((), jnp.int32)
    half, turns = middle(xi, lam, S, s, node, frozen.rank < R)
    at_half = linearise(half)
    space = build(space, at_half)
    symmetric, _, vectors = ritz(space)
    swings = turns & symmetric & ~space.closed

    def measure():
        y = direction(vectors)
        return measured(space, y, *linearise(s)(tree.combine(y, space.Q)), later)

    swing = lax.cond(swings, measure, lambda: no_swing(space, lam))
    return space, swing, at_half, swings.astype(jnp.int32)
