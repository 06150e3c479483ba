"""Every truncation in one sweep: h_{T-K} is a prefix of one sum, for all K.

    d_lam f = grad_lam f + B_T alpha_T + B_{T-1} alpha_{T-1} + ... + B_1 alpha_1 + B_0 alpha_0

The sweep goes back once over all T steps, recomputing iterates from one in sqrt(T), and keeps
the sum at the depths that are asked for.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int

from .. import _tree as tree
from .._dynamics import AbstractDynamics
from .._hypergradient import gradient
from .._loop import Back, Visit, in_segments, read_vjp, start_vjp
from .._rules.budget import root
from .._types import Context, Hyper, Objective, Params, State


class Visited(NamedTuple):
    """A state, and the number of the step to linearise there."""

    s: State
    t: int


class Gathered(NamedTuple):
    """What is kept on the way back."""

    sums: Hyper
    """The first K terms of the sum, stacked over the depths K."""
    alphas: Float[Array, " T+1"]
    """|alpha_T|, |alpha_{T-1}|, ..., |alpha_0|."""
    parts: Float[Array, " T"]
    """|B_T alpha_T|, |B_{T-1} alpha_{T-1}|, ..."""


class Sweep(NamedTuple):
    """What one way there and back gives."""

    slope: Params
    """grad_w f."""
    direct: Hyper
    """grad_lam f."""
    gathered: Gathered
    begun: Hyper
    """B_0 alpha_0."""
    whole: Hyper
    """All T terms, and B_0 alpha_0."""
    iterates: tuple[Visited, Visited, Visited]
    """s_0, one near the end, and s_T."""


def sweep(
    f: Objective, xi: AbstractDynamics, lam: Hyper, S: Context, T: int, depths: Int[Array, " n"]
) -> Sweep:
    """Eq. 6 over all steps; the depths are sorted."""
    c = root(T)
    first = xi.start(lam, S)
    end, way, starts = in_segments(xi, lam, S, first, 0, T, (c,), visit=_gather(T, depths))
    w, pull_read = read_vjp(xi, end)
    _, (slope, direct) = gradient(f, w, lam, S, has_aux=False)
    alpha = pull_read(slope)
    nothing = _nothing(alpha, lam, T, depths.shape[0])
    at = way(Back(alpha, optax.tree.zeros_like(lam), T, nothing))
    begun = start_vjp(xi, lam, S, at.alpha)
    near = jax.tree.map(lambda a: a[max(T // c - 2, 0)], starts)
    iterates = Visited(first, 0), Visited(near, max(T - 2 * c, 0)), Visited(end, T - 1)
    return Sweep(slope, direct, at.gathered, begun, optax.tree.add(at.h, begun), iterates)


def _nothing(alpha: State, lam: Hyper, T: int, n: int) -> Gathered:
    alphas = jnp.zeros(T + 1, tree.widest(alpha)).at[0].set(tree.norm(alpha))
    return Gathered(tree.stack_of_zeros(n, lam), alphas, jnp.zeros(T, tree.widest(lam)))


def _gather(T: int, depths: Int[Array, " n"]) -> Visit:
    def visit(before: Back, part: Hyper, after: Back) -> Gathered:
        sums, alphas, parts = before.gathered
        K = T - after.t
        i = jnp.searchsorted(depths, K)  # a slot is overwritten until its depth has come
        sums = jax.tree.map(lambda b, a: b.at[i].set(a, mode="drop"), sums, after.h)
        alphas = alphas.at[K].set(tree.norm(after.alpha))
        return Gathered(sums, alphas, parts.at[K - 1].set(tree.norm(part)))

    return visit
