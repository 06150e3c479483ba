"""What the way back may keep in so many bytes: Table 1, read from shapes."""

import math
from typing import Any

import equinox as eqx
import jax
from jax import lax
from jax.extend.core import Literal

from .. import _tree as tree
from .._dynamics import AbstractDynamics
from .._errors import rules
from .._types import Context, Hyper, Policy, State

WORTH = 256
"""Terms in each number of a product above which it is quicker to read it than to compute it again.
A processor takes tens of operations in the time of moving a number to memory and back."""


def plan(
    memory: float, xi: AbstractDynamics, lam: Hyper, S: Context, s: State, n: int
) -> tuple[tuple[int, ...], Policy | None]:
    """Segments and policy of a way back over n steps from s that fits, the likely fastest one.

    Long products are kept if they fit; else iterates; else starts of segments, in as many levels as
    it takes.
    """
    state = sum(a.nbytes for a in jax.tree.leaves(s))
    kept = _kept(xi, lam, S, s)
    if kept and n * (state + kept) <= memory:
        return (), long_products
    ways = ((), *least(n))
    for lengths in ways:
        if states(n, lengths) * state <= memory:
            return lengths, None
    rules.no_room(memory, n, min(states(n, lengths) for lengths in ways) * state, state)


def long_products(primitive: Any, *shapes: Any, **settings: Any) -> bool:
    """The policy of `jax.checkpoint` that keeps products whose numbers are sums of many terms."""
    if primitive is not lax.dot_general_p:
        return False
    (summed, _), _ = settings["dimension_numbers"]
    return math.prod(shapes[0].shape[i] for i in summed) >= WORTH


def root(n: int) -> int:
    """The square root, rounded up: the segment of n steps that takes the least memory."""
    return math.isqrt(n - 1) + 1


def least(n: int) -> list[tuple[int, ...]]:
    """One, two and three levels of segments that take the least memory: powers of a root of n."""
    bases = [root(n), *(max(math.ceil(n ** (1 / k) - 1e-9), 2) for k in (3, 4))]
    levels = [tuple(c**i for i in range(k, 0, -1)) for k, c in enumerate(bases, 1)]
    return [lengths for lengths in levels if lengths[0] < n]


def states(n: int, lengths: tuple[int, ...]) -> int:
    """How many are kept: n, or n/c + ... + e with segments of c, ..., e steps."""
    longer = (n, *lengths)
    return sum(-(-a // b) for a, b in zip(longer, (*lengths, 1), strict=True))


def _kept(xi: AbstractDynamics, lam: Hyper, S: Context, s: State) -> int:
    """Bytes of the long products of a step; what all steps share is not kept by each."""
    x, rest = eqx.partition(s, eqx.is_inexact_array)
    step = lambda x, lam: tree.inexact(xi.advance(eqx.combine(x, rest), lam, S, 0))
    keeping = jax.checkpoint(step, policy=long_products)
    traced = jax.make_jaxpr(lambda x, lam: jax.tree.leaves(jax.vjp(keeping, x, lam)[1]))(x, lam)
    given = {*traced.jaxpr.invars, *traced.jaxpr.constvars}
    variables = {v for v in traced.jaxpr.outvars if not isinstance(v, Literal)}
    return sum(v.aval.size * v.aval.dtype.itemsize for v in variables - given)
