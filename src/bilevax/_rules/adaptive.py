"""Reverse mode that decides by itself how far to go back."""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jax import lax
from jaxtyping import Array, Float

from .. import _tree as tree
from .._dynamics import AbstractDynamics
from .._errors import check, rules
from .._errors.say import say_if_missed
from .._loop import Back, back, read_vjp, recorded, unroll
from .._types import Context, Hyper, Params, Pull, Time
from .base import AbstractRule, Channel

WINDOW = 3
"""Terms in one look at the decay: the largest of three, so that a dip in an oscillating
sequence (momentum) is not taken for the end of it."""


SLOWING = 0.5
"""What is left is taken to decay at half the observed rate: fast components die first, so
the decay of a sum of many modes only ever slows down."""

JUMP = 10.0
"""lam acts rarely if a gain was so much larger than one of the last few; these begin with 0."""

REMEDY = "Raise max_K or rtol, or use Reverse(segment=...) for every step."


class AdaptiveReverse(AbstractRule):
    """Truncated back-propagation (Eq. 8) that stops when the rest is small enough.

    It goes back step by step. It extends the last terms ``|B_t alpha_t|`` as a geometric series
    over the steps that remain, as the bound of Prop. 3.1 does, and stops when the sum of that
    series is below `rtol` times the sum so far. If terms are zero or jump, lam acts in some steps
    only: then the rule uses the decay of alpha_t instead. It keeps `max_K` states, computes only
    the terms that it needs, and never includes B_0.

    **Arguments:**

    - `rtol`: the relative error to aim for.
    - `max_K`: how far to go at most. If the tolerance is not met by then, a warning says so.

    The estimate's `report` holds `depth`, the steps gone back; `tail`, the estimated relative
    error; and `converged`.

    It has derivatives by forward mode only (its loop has no fixed length).

    !!! example

        >>> import bilevax as bx
        >>> bx.AdaptiveReverse(rtol=0.01, max_K=50)
        AdaptiveReverse(rtol=0.01, max_K=50)

    ??? cite "Reference"

        Prop. 3.1 and Eq. 8 of Shaban et al., AISTATS 2019.
    """

    rtol: float = eqx.field(static=True, converter=check.plain(float))
    max_K: int = eqx.field(static=True, converter=check.plain(int))

    def __check_init__(self):
        check.positive(self.rtol, "rtol", "give a relative error, as in rtol=0.01")
        check.integer(self.max_K, "max_K", "give the largest number of steps to go back")

    def vjp(self, xi: AbstractDynamics, lam: Hyper, S: Context, T: int) -> tuple[Params, Pull]:
        K = min(self.max_K, T)
        s = unroll(xi, lam, S, xi.start(lam, S), 0, T - K)
        s, history = recorded(xi, lam, S, s, T - K, K)
        w, pull_read = read_vjp(xi, s)

        def product(t):
            s = jax.tree.map(lambda a: a[t - (T - K)], history)
            return xi.advance_vjp(s, lam, S, t)

        def pull(alpha: Params):
            go_on = lambda at: (at.t > T - K) & (at.gathered.tail > self.rtol)
            first = Back(pull_read(alpha), optax.tree.zeros_like(lam), jnp.asarray(T, jnp.int32))
            first = first._replace(gathered=_Decay.none(tree.widest(lam)))
            last = lax.while_loop(go_on, lambda at: back(product, at, _look), first)
            tail = last.gathered.tail
            say_if_missed(self, REMEDY, tail, tail > self.rtol)
            h = rules.forward_only(self, last.h)
            return h, {"depth": T - last.t, "tail": tail, "converged": tail <= self.rtol}

        return w, pull

    def sees(self) -> Channel:
        return Channel.STEP


class _Decay(NamedTuple):
    """How fast cotangents and terms have been shrinking, the newest first."""

    terms: Float[Array, " twice_window"]
    """|B_t alpha_t|."""
    alphas: Float[Array, " twice_window"]
    """|alpha_t|."""
    gains: Float[Array, " twice_window"]
    """|B_t alpha_t| / |alpha_t|."""
    gain: Float[Array, ""]
    """The largest of them so far."""
    tail: Float[Array, ""]
    """What is left, relative to the sum so far."""

    @classmethod
    def none(cls, dtype) -> "_Decay":
        unknown = jnp.full(2 * WINDOW, jnp.inf, dtype)
        zero, inf = jnp.zeros((), dtype), jnp.asarray(jnp.inf, dtype)
        return cls(unknown, unknown, jnp.zeros_like(unknown), zero, inf)


def _look(before: Back, part: Hyper, after: Back) -> _Decay:
    """The decay with one more term."""
    old: _Decay = before.gathered
    dtype = old.terms.dtype
    add = lambda sizes, x: jnp.roll(sizes, 1).at[0].set(x.astype(dtype))
    term, size = tree.norm(part).astype(dtype), tree.norm(before.alpha).astype(dtype)
    terms, alphas = add(old.terms, term), add(old.alphas, tree.norm(after.alpha))
    gains = add(old.gains, term / tree.positive(size))
    gain = jnp.maximum(old.gain, gains[0])
    rarely = gain > JUMP * jnp.min(gains)
    left = _left(terms, alphas, jnp.where(rarely, gain, 0.0), after.t)
    total = tree.norm(after.h).astype(dtype)
    relative = jnp.where(left > 0, left / jnp.where(total > 0, total, left), left)
    nothing = (total == 0) & (alphas[0] > 0) & (after.t > 0)  # nothing has converged to zero
    return _Decay(terms, alphas, gains, gain, jnp.where(nothing, jnp.inf, relative))


def _left(terms: Array, alphas: Array, gain: Array, steps: Time) -> Float[Array, ""]:
    """The sum of the terms of the steps that are to come, estimated.

    Where lam acts rarely, a term may be as large as the largest gain makes it; else it is 0.
    """
    rest = jnp.asarray(steps, terms.dtype)
    rare = jnp.where(gain > 0, gain * (alphas[0] + _geometric(alphas, rest - 1)), 0.0)
    left = jnp.maximum(_geometric(terms, rest), rare)
    return jnp.where((rest == 0) | (alphas[0] == 0), jnp.zeros_like(left), left)


def _geometric(sizes: Float[Array, " twice_window"], rest: Float[Array, ""]) -> Float[Array, ""]:
    """level (q + q^2 + ... + q^rest), q being the observed decay from window to window."""
    level, before = jnp.max(sizes[:WINDOW]), jnp.max(sizes[WINDOW:])
    ratio = jnp.where(jnp.isfinite(before) & (before > 0), level / before, jnp.ones_like(level))
    q = ratio ** (SLOWING / WINDOW)
    near = jnp.abs(1 - q) < 1e-6
    series = q * (1 - q**rest) / jnp.where(near, jnp.ones_like(q), 1 - q)
    return level * jnp.where(near, rest, series)
