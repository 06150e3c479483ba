"""Every truncation in one sweep: h_{T-K} is a prefix of one sum, for all K.

    d_lam f = grad_lam f + B_T alpha_T + B_{T-1} alpha_{T-1} + ... + B_1 alpha_1 + B_0 alpha_0

The sweep goes back once over all T steps, recomputing iterates from one in sqrt(T), and keeps
the sum at the depths that are asked for.
"""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int

from .. import _tree as tree
from .._dynamics import AbstractDynamics
from .._errors import check
from .._loop import Back, in_segments, read_vjp, start_vjp
from .._types import Context, Hyper, Objective, Params, State


class Sweep(NamedTuple):
    """What one way there and back leaves behind."""

    slope: Params
    """grad_w f."""
    direct: Hyper
    """grad_lam f."""
    sums: Hyper
    """The first K terms of the sum, stacked over the depths K."""
    whole: Hyper
    """All T terms, and B_0 alpha_0."""
    alphas: Float[Array, " T+1"]
    """|alpha_T|, |alpha_{T-1}|, ..., |alpha_0|."""
    parts: Float[Array, " T"]
    """|B_T alpha_T|, |B_{T-1} alpha_{T-1}|, ..."""
    start: Float[Array, ""]
    """|B_0 alpha_0|."""
    marks: State
    """Iterates, evenly spread, stacked; the first is s_0."""
    end: State
    """s_T."""


def sweep(
    f: Objective, xi: AbstractDynamics, lam: Hyper, S: Context, T: int, depths: Int[Array, " n"]
) -> Sweep:
    """Eq. 6 over all steps; the depths are sorted."""
    first = xi.start(lam, S)
    c = math.isqrt(T - 1) + 1
    look = lambda *where: _look(T, depths, *where)
    end, way, starts = in_segments(xi, lam, S, first, 0, T, c, visit=look)
    w, pull_read = read_vjp(xi, end)
    scalar_f = lambda w, lam: check.scalar(f(w, lam, S), "f")
    slope, direct = jax.grad(scalar_f, (0, 1))(w, lam)
    sizes = jnp.zeros(T, tree.widest(w))
    seen = _Seen(tree.stack_of_zeros(depths.shape[0], lam), sizes, sizes)
    last = way(Back(pull_read(slope), optax.tree.zeros_like(lam), T, seen))
    begun = start_vjp(xi, lam, S, last.alpha)
    whole = optax.tree.add(last.h, begun)
    alphas = jnp.append(last.gathered.alphas, tree.norm(last.alpha).astype(sizes.dtype))
    if T % c:
        starts = jax.tree.map(lambda a, b: jnp.concatenate([a[None], b]), first, starts)
    sums, parts = last.gathered.sums, last.gathered.parts
    return Sweep(slope, direct, sums, whole, alphas, parts, tree.norm(begun), starts, end)


class _Seen(NamedTuple):
    sums: Hyper
    alphas: Float[Array, " T"]
    parts: Float[Array, " T"]


def _look(T: int, depths: Int[Array, " n"], before: Back, part: Hyper, after: Back) -> _Seen:
    """The sums and norms with those of one more step."""
    seen: _Seen = before.gathered
    k = T - before.t
    i = jnp.searchsorted(depths, k + 1)  # a slot is overwritten until its depth has come
    sums = jax.tree.map(lambda b, a: b.at[i].set(a, mode="drop"), seen.sums, after.h)
    put = lambda sizes, x: sizes.at[k].set(tree.norm(x).astype(sizes.dtype))
    return _Seen(sums, put(seen.alphas, before.alpha), put(seen.parts, part))
