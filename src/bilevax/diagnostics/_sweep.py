"""Every truncation in one sweep: h_{T-K} is a prefix of one sum, for all K.

    d_lam f = grad_lam f + B_T alpha_T + B_{T-1} alpha_{T-1} + ... + B_1 alpha_1 + B_0 alpha_0

The sweep goes back once over all T steps, recomputing iterates from one in sqrt(T), and keeps
the sum at the depths that are asked for.
"""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Int

from .. import _tree as tree
from .._dynamics import AbstractDynamics
from .._errors import check
from .._loop import read_vjp, record, step_vjp, unroll
from .._rules.reverse import start_vjp
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
    c = math.isqrt(T - 1) + 1
    n, left = T // c, T % c
    first = xi.start(lam, S)
    s, short = record(xi, lam, S, first, 0, left)  # the steps that fill no segment

    def forward(carry, _):
        s, t = carry
        return (unroll(xi, lam, S, s, t, c), t + c), s

    (end, _), marks = lax.scan(forward, (s, jnp.asarray(left, jnp.int32)), None, length=n)
    w, pull_read = read_vjp(xi, end)
    scalar_f = lambda w, lam: check.scalar(f(w, lam, S), "f")
    slope, direct = jax.grad(scalar_f, (0, 1))(w, lam)

    def back(carry, s):
        alpha, h, sums, k = carry
        size = tree.norm(alpha)
        alpha, part = step_vjp(xi, lam, S, s, T - 1 - k)(alpha)
        h = tree.add(h, part)
        i = jnp.searchsorted(depths, k + 1)  # a slot is overwritten until its depth has come
        sums = jax.tree.map(lambda b, a: b.at[i].set(a, mode="drop"), sums, h)
        return (alpha, h, sums, k + 1), (size, tree.norm(part))

    def segment(carry, s):
        _, history = record(xi, lam, S, s, T - carry[3] - c, c)
        return lax.scan(back, carry, history, reverse=True)

    sums = tree.stack_of_zeros(depths.shape[0], lam)
    carry = (pull_read(slope), tree.zeros(lam), sums, jnp.zeros((), jnp.int32))
    carry, late = lax.scan(segment, carry, marks, reverse=True)
    (alpha, h, sums, _), early = lax.scan(back, carry, short, reverse=True)
    late, early = (x[::-1] for x in map(jnp.ravel, late)), (x[::-1] for x in early)
    sizes, parts = (jnp.concatenate(pair) for pair in zip(late, early, strict=True))
    begun = start_vjp(xi, lam, S, alpha)
    alphas = jnp.append(sizes, tree.norm(alpha))
    if left:
        marks = jax.tree.map(lambda a, b: jnp.concatenate([a[None], b]), first, marks)
    return Sweep(
        slope, direct, sums, tree.add(h, begun), alphas, parts, tree.norm(begun), marks, end
    )
