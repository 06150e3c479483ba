"""Loops that swing to and fro, as gradient descent does at the edge of stability.

Beyond the stability limit the nonlinearity holds the iterates, and they jump from one side of a
valley to the other in every step. The Jacobians of the two sides differ:

    A_t = A + sign_t D ,    B_t = B + sign_t E ,    sign_t = -sign_{t+1} = 1 or -1 ,

A and B being those in the middle of the jump. The cotangent has a part that alternates too,
along the direction y of the jump, so that neither D nor E averages out over a piece. One
product on one side gives D y and E y; where A is symmetric, so is D, and

    D = D y y' + y (D y)' - y <y, D y> y' ,      E = E y y'

are D and E on y, and the effect of D on y.
"""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int, PyTree

from ... import _tree as tree
from ..._dynamics import AbstractDynamics
from ..._types import Context, Hyper, State, Time
from .arnoldi import Space, ritz

TURN = 0.5
"""The loop swings if a step takes back this part of the step before it."""


LEAST = 6
"""The least rank: of fewer products none can be spared for the swing."""


class Swing(NamedTuple):
    """What the two sides add to the middle, in coordinates of a Krylov space."""

    y: Float[Array, " m+1"]
    """The direction of the jump: the Ritz vector of the lowest Ritz value."""
    D: Float[Array, "m+1 m+1"]
    Ey: Hyper
    sign: Float[Array, ""]
    """The sign of the last step of the piece; that of the node is 1."""


def no_swing(space: Space, lam: Hyper) -> Swing:
    y = jnp.zeros_like(space.H[:, 0])
    return Swing(y, jnp.zeros((y.size, y.size), y.dtype), tree.zeros(lam), jnp.ones_like(y[0]))


def direction(space: Space) -> Float[Array, " m+1"]:
    """y, the Ritz vector of the lowest Ritz value."""
    low = lax.stop_gradient(ritz(space)[2][:, 0])
    return jnp.concatenate([low, jnp.zeros_like(low[:1])])


def middle(
    xi: AbstractDynamics, lam: Hyper, S: Context, s: State, t: Time, may: Bool[Array, ""]
) -> tuple[State, Bool[Array, ""]]:
    """Half-way from s = s_t to s_{t+1} if the loop swings there, else s; and whether it does."""
    one = xi.advance(s, lam, S, t)
    two = xi.advance(one, lam, S, t)
    rest = eqx.filter(s, eqx.is_inexact_array, inverse=True)
    a, b, c = (tree.inexact(x) for x in (s, one, two))
    step, after = tree.sub(b, a), tree.sub(c, b)
    swings = may & (tree.dot(step, after) < -TURN * tree.dot(step, step))
    half = tree.scale(0.5, tree.add(a, b))
    return eqx.combine(jax.tree.map(lambda h, x: jnp.where(swings, h, x), half, a), rest), swings


def feel(
    space: Space, y: Array, Ay: PyTree, By: Hyper, steps: Int[Array, ""], swings: Bool[Array, ""]
) -> Swing:
    """D and E from one product on y at the node, `steps` before the piece ends; else zero."""
    m = space.H.shape[1]
    Dy = tree.coordinates(space.Q, Ay) - space.H @ y[:m]
    D = jnp.outer(Dy, y) + jnp.outer(y, Dy) - (y @ Dy) * jnp.outer(y, y)
    Ey = tree.sub(By, tree.combine(y[:m], space.BQ))
    sign = jnp.where(steps % 2 == 0, 1.0, -1.0).astype(y.dtype)
    D, Ey = jax.tree.map(lambda a: jnp.where(swings, a, jnp.zeros_like(a)), (D, Ey))
    return Swing(y, D, Ey, sign)
