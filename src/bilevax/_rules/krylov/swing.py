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

import equinox as eqx
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Int, PyTree

from ... import _tree as tree
from ..._dynamics import AbstractDynamics
from ..._loop import forward
from ..._types import Context, Hyper, State, Time
from .arnoldi import Space, Swing

TURN = 0.5
"""The loop swings if a step takes back this part of the step before it."""


def middle(
    xi: AbstractDynamics, lam: Hyper, S: Context, s: State, t: Time, may: Bool[Array, ""]
) -> tuple[State, Bool[Array, ""]]:
    """Half-way from s = s_t to s_{t+1} if the loop swings there, else s; and whether it does."""
    step = lambda s, t: xi.advance(s, lam, S, t)
    two, begun = forward(step, s, t, 2, keep=lambda s, _: s, stride=0)  # one step is compiled
    rest = eqx.filter(s, eqx.is_inexact_array, inverse=True)
    a, b, c = (tree.inexact(x) for x in (s, tree.take(begun, 1), two))
    step, after = optax.tree.sub(b, a), optax.tree.sub(c, b)
    swings = may & (tree.dot(step, after) < -TURN * tree.dot(step, step))
    half = tree.scale(0.5, optax.tree.add(a, b))
    return eqx.combine(optax.tree.where(swings, half, a), rest), swings


def direction(vectors: Float[Array, "m m"]) -> Float[Array, " m+1"]:
    """y, the Ritz vector of the lowest Ritz value."""
    low = vectors[:, 0]
    return jnp.concatenate([low, jnp.zeros_like(low[:1])])


def measured(space: Space, y: Array, Ay: PyTree, By: Hyper, steps: Int[Array, ""]) -> Swing:
    """D and E from one product on y at the node, `steps` before the piece ends."""
    m = space.H.shape[1]
    Dy = tree.coordinates(space.Q, Ay).astype(y.dtype) - space.H @ y[:m]
    D = jnp.outer(Dy, y) + jnp.outer(y, Dy) - (y @ Dy) * jnp.outer(y, y)
    Ey = optax.tree.sub(By, tree.combine(y[:m], space.BQ))
    return Swing(y, D, Ey, jnp.where(steps % 2 == 0, 1.0, -1.0).astype(y.dtype))
