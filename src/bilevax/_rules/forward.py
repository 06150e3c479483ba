"""Forward-mode differentiation: tangents travel with the loop, no history is kept."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Int, PyTree

from .. import _tree as tree
from .._dynamics import AbstractDynamics
from .._errors import check
from .._loop import forward, solved
from .._types import Context, Hyper, Params, Pull
from .base import AbstractRule, Channel


class Forward(AbstractRule):
    """Forward-mode differentiation (Eq. 7), for few hyperparameters.

    It propagates Z_t = d_lam s_t, N states, along the loop. Memory does not depend on T;
    time is N + 1 times that of the loop.

    **Arguments:**

    - `chunk`: how many of the N directions to propagate at once; the loop is run once
        for each chunk, and memory falls from N to `chunk` states. Default: all N.

    !!! example

        >>> import bilevax as bx
        >>> bx.Forward(chunk=8)
        Forward(chunk=8)

    ??? cite "Reference"

        Eq. 7 and Table 1 of Shaban et al., AISTATS 2019.
    """

    chunk: int | None = eqx.field(default=None, static=True, converter=check.plain(int | None))

    def __check_init__(self):
        if self.chunk is not None:
            check.integer(self.chunk, "chunk", "leave it out for all directions at once")

    def vjp(self, xi: AbstractDynamics, lam: Hyper, S: Context, T: int) -> tuple[Params, Pull]:
        N = tree.size(lam)
        chunk = N if self.chunk is None else min(self.chunk, N)
        if chunk == N > 0:  # Z_T fits: one loop serves w_T and every alpha
            w, Z = _tangents(xi, lam, S, T, jnp.arange(N, dtype=jnp.int32))
            return w, lambda alpha: (tree.from_coordinates(lam, tree.coordinates(Z, alpha)), {})
        w = xi.read(solved(xi, lam, S, T))

        def pull(alpha: Params):
            row = lambda i: tree.coordinates(_tangents(xi, lam, S, T, i[None])[1], alpha)[0]
            if N == 0:
                return lam, {}
            index = jnp.arange(N, dtype=jnp.int32)
            return tree.from_coordinates(lam, lax.map(row, index, batch_size=chunk)), {}

        return w, pull

    def sees(self) -> Channel:
        return Channel.START | Channel.STEP | Channel.EACH


def _tangents(
    xi: AbstractDynamics, lam: Hyper, S: Context, T: int, index: Int[Array, " n"]
) -> tuple[Params, PyTree]:
    """w_T and the rows of Z_T that belong to the given coordinates of lam (Eq. 7)."""
    split = lambda s: eqx.partition(s, eqx.is_inexact_array)

    def begin(i):
        e = tree.basis(lam, i)
        f = lambda lam: split(xi.start(lam, S))
        return jax.jvp(f, (lam,), (e,), has_aux=True)  # Z_0 = B_0

    def push(Z, i, x, rest, t):
        e = tree.basis(lam, i)
        f = lambda x, lam: split(xi.advance(eqx.combine(x, rest), lam, S, t))
        return jax.jvp(f, (x, lam), (Z, e), has_aux=True)  # Z_{t+1} = Z_t A_{t+1} + B_{t+1}

    def step(s, t):
        x, Z, rest = s
        return jax.vmap(push, (0, 0, None, None, None), (None, 0, None))(Z, index, x, rest, t)

    s = jax.vmap(begin, 0, (None, 0, None))(index)
    (x, Z, rest), _ = forward(step, s, 0, T)
    read = lambda x: tree.inexact(xi.read(eqx.combine(x, rest)))
    Z = jax.vmap(lambda z: jax.jvp(read, (x,), (z,))[1])(Z)
    return xi.read(eqx.combine(x, rest)), Z
