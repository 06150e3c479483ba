"""Reverse mode that decides by itself how far to go back."""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int, PyTree

from .. import _tree as tree
from .._dynamics import AbstractDynamics
from .._errors import check
from .._errors.say import say_if_missed
from .._loop import read_vjp, record, step_vjp, unroll
from .._types import Context, Hyper, Params, Pull
from .base import AbstractRule, Channel

WINDOW = 3
"""Terms in one look at the decay: the largest of three, so that a dip in an oscillating
sequence (momentum) is not taken for the end of it."""


SLOWING = 0.5
"""What is left is taken to decay at half the observed rate: fast components die first, so
the decay of a sum of many modes only ever slows down."""

REMEDY = "Raise max_K or rtol, or use Reverse(segment=...) for every step."


class Adaptive(AbstractRule):
    """Truncated back-propagation (Eq. 8) that stops when the rest is small enough.

    Goes back step by step. From the decay of the last terms ``|B_t alpha_t|`` it extends
    them as a geometric series over the steps that remain, as the bound of Prop. 3.1 does,
    and stops when that tail is below `rtol` times what has been summed up. Holds `max_K`
    states; computes only as many terms as it needs. Never B_0.

    **Arguments:**

    - `rtol`: the relative error to aim for.
    - `max_K`: how far to go at most. If the tolerance is not met by then, a warning says so.

    The estimate's `report` holds `depth`, the steps gone back; `tail`, the estimated relative
    error; and `converged`.

    It has derivatives by forward mode only (its loop has no fixed length).

    !!! example

        >>> import bilevax as bx
        >>> bx.Adaptive(rtol=0.01, max_K=50)
        Adaptive(rtol=0.01, max_K=50)

    ??? cite "Reference"

        Prop. 3.1 and Eq. 8 of Shaban et al., AISTATS 2019.
    """

    rtol: float = eqx.field(static=True)
    max_K: int = eqx.field(static=True)

    def __check_init__(self):
        check.positive(self.rtol, "rtol", "give a relative error, as in rtol=0.01")
        check.integer(self.max_K, "max_K", "give the depth at which to stop at the latest")

    def vjp(self, xi: AbstractDynamics, lam: Hyper, S: Context, T: int) -> tuple[Params, Pull]:
        K = min(self.max_K, T)
        s = unroll(xi, lam, S, xi.start(lam, S), 0, T - K)
        s_T, history = record(xi, lam, S, s, T - K, K)
        w, pull_read = read_vjp(xi, s_T)

        def pull(alpha: Params):
            def body(sweep: _Sweep) -> _Sweep:
                t = T - 1 - sweep.depth
                s = jax.tree.map(lambda a: a[K - 1 - sweep.depth], history)
                alpha, term = step_vjp(xi, lam, S, s, t)(sweep.alpha)
                return sweep.add(alpha, term, t, self.rtol)

            go_on = lambda sweep: (sweep.depth < K) & ~sweep.converged
            sweep = lax.while_loop(go_on, body, _Sweep.begin(pull_read(alpha), lam))
            depth, tail = sweep.depth, sweep.tail
            say_if_missed(self, REMEDY, tail, ~sweep.converged)
            return sweep.h, {"depth": depth, "tail": tail, "converged": sweep.converged}

        return w, pull

    def sees(self) -> Channel:
        return Channel.STEP


class _Sweep(NamedTuple):
    """Where the way back stands: Eq. 6, and how fast its terms have been shrinking."""

    alpha: PyTree
    h: Hyper
    depth: Int[Array, ""]
    sizes: Float[Array, " twice_window"]
    tail: Float[Array, ""]
    converged: Bool[Array, ""]

    @classmethod
    def begin(cls, alpha: PyTree, lam: Hyper) -> "_Sweep":
        dtype = tree.widest(lam)
        sizes = jnp.full(2 * WINDOW, jnp.inf, dtype)
        zero = jnp.zeros((), jnp.int32)
        return cls(alpha, tree.zeros(lam), zero, sizes, jnp.asarray(jnp.inf, dtype), zero > 0)

    def add(self, alpha: PyTree, term: Hyper, rest: Int[Array, ""], rtol: float) -> "_Sweep":
        """The next term, with `rest` steps still to come before the start."""
        h = tree.add(self.h, term)
        sizes = jnp.roll(self.sizes, 1).at[0].set(tree.norm(term))
        tail = _tail(sizes, rest.astype(sizes.dtype))
        tail = jnp.where((rest == 0) | (tree.norm(alpha) == 0), jnp.zeros_like(tail), tail)
        total = tree.norm(h)
        relative = jnp.where(tail > 0, tail / jnp.where(total > 0, total, tail), tail)
        return _Sweep(alpha, h, self.depth + 1, sizes, relative, relative <= rtol)


def _tail(sizes: Float[Array, " twice_window"], rest: Float[Array, ""]) -> Float[Array, ""]:
    """level (q + q^2 + ... + q^rest), q being the observed decay from window to window."""
    level, before = jnp.max(sizes[:WINDOW]), jnp.max(sizes[WINDOW:])
    ratio = jnp.where(jnp.isfinite(before) & (before > 0), level / before, jnp.ones_like(level))
    q = ratio ** (SLOWING / WINDOW)
    near = jnp.abs(1 - q) < 1e-6
    geometric = q * (1 - q**rest) / jnp.where(near, jnp.ones_like(q), 1 - q)
    return level * jnp.where(near, rest, geometric)
