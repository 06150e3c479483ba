"""Krylov back-propagation that is given an accuracy and finds pieces and rank by itself."""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Int, PyTree

from . import _check as check
from . import _tree as tree
from ._arnoldi import Product, Space, begin, extend, powers
from ._dynamics import AbstractDynamics
from ._krylov_error import estimate_error, gather, no_evidence, side_weights
from ._krylov_path import Path, cut, walk
from ._rule import AbstractRule, Channel
from ._say import say_if_missed
from ._types import Context, Hyper, Params, Pull
from ._unroll import read_vjp

LEAST = 3
"""The least rank: below it the decay of the coefficients says nothing."""

REMEDY = (
    "The Jacobian moves too much along the loop (Adam, minibatches, a violent start), or its "
    "spectrum is too wide: raise rtol, max_pieces or max_rank, or use Reverse(segment=...)."
)


class AdaptiveKrylov(AbstractRule):
    """`Krylov` to a relative accuracy: it chooses exact first steps, pieces and rank.

    The first steps are taken exactly as long as they are violent. The rest is tried as one
    piece, then two, four, ..., each piece growing its space until the residual is small, until
    the estimated error is below `rtol`. The estimate has a part for the subspace, from
    the Arnoldi residuals, and a part for freezing the Jacobians, from two more products in
    each piece, with the Jacobians of its two ends.

    **Arguments:**

    - `rtol`: the relative error of the pullback to aim for.
    - `max_pieces`: the most pieces to try; a power of two.
    - `max_rank`: the most products in a piece, beside the two of the estimate.

    The estimate's `report` holds `error`, the estimated relative error, and its parts
    `subspace` and `freezing`; `products`, all that were taken; and the `pieces` and `head`
    chosen. A warning says when `error` is above `rtol`; the best attempt is then returned.
    Memory: about 6 `max_pieces` + `max_rank` + 9 states and T numbers.

    !!! example

        >>> import bilevax as bx
        >>> bx.AdaptiveKrylov(rtol=0.05)
        AdaptiveKrylov(rtol=0.05)

    ??? cite "Reference"

        The derivation is in the documentation, "Krylov back-propagation".
    """

    rtol: float = eqx.field(default=0.1, static=True)
    max_pieces: int = eqx.field(default=4, static=True)
    max_rank: int = eqx.field(default=16, static=True)

    def __check_init__(self):
        check.positive(self.rtol, "rtol", "give a relative error, as in rtol=0.1")
        check.integer(self.max_pieces, "max_pieces", "one piece covers the whole horizon")
        check.integer(self.max_rank, "max_rank", "give the most products in a piece")

    def vjp(self, xi: AbstractDynamics, lam: Hyper, S: Context, T: int) -> tuple[Params, Pull]:
        path = walk(xi, lam, S, T, self.max_pieces)
        w, pull_read = read_vjp(xi, path.end)

        def pull(alpha: Params):
            alpha = pull_read(alpha)

            def body(carry):
                best, pieces, products, _ = carry
                new = _attempt(self, path, lam, T, alpha, pieces)
                better = (new.error < best.error) | (best.pieces == 0)
                best = jax.tree.map(lambda a, b: jnp.where(better, a, b), new, best)
                return best, 2 * pieces, products + new.products, best.error <= self.rtol

            # Products beyond T would be better spent on full reverse mode.
            go_on = lambda carry: (carry[1] <= self.max_pieces) & (carry[2] < T) & ~carry[3]
            one, none = jnp.ones((), jnp.int32), jnp.zeros((), jnp.int32)
            carry = (_nothing(lam), one, none, none > 0)
            best, _, products, _ = lax.while_loop(go_on, body, carry)
            report = best._asdict() | {"products": products, "head": path.head}
            say_if_missed(self, REMEDY, best.error, best.error > self.rtol)
            return report.pop("h"), report

        return w, pull

    def sees(self) -> Channel:
        return Channel.START | Channel.STEP


class _Outcome(NamedTuple):
    """One attempt with a given number of pieces."""

    h: Hyper
    error: Float[Array, ""]
    subspace: Float[Array, ""]
    freezing: Float[Array, ""]
    products: Int[Array, ""]
    pieces: Int[Array, ""]


def _nothing(lam: Hyper) -> _Outcome:
    inf = jnp.asarray(jnp.inf, tree.widest(lam))
    none = jnp.zeros((), jnp.int32)
    return _Outcome(tree.zeros(lam), inf, inf, inf, none, none)


def _attempt(
    rule: AdaptiveKrylov, path: Path, lam: Hyper, T: int, alpha: PyTree, pieces: Int[Array, ""]
) -> _Outcome:
    """The hypergradient with this many pieces, and what it is worth."""
    rank = min(rule.max_rank, T, tree.size(tree.inexact(path.end)))
    dtype = tree.widest(alpha)

    def piece(i, carry):
        alpha, h, products, clipped, evidence = carry
        j = pieces - 1 - i  # the last piece first
        first, node, last = cut(path.head, T, pieces, j)
        R = jnp.where(path.head < T, last + 1 - first, 0)
        space = _grow(path.product(node), begin(alpha, lam, rank, True), h, first, R, T, rule)
        C, over = powers(space, R, T)
        side = side_weights(path.length, first, node, last)
        row = gather(space, C, R, side, path.product(first), path.product(last))
        evidence = jax.tree.map(lambda a, b: a.at[j].set(b), evidence, row)
        h = tree.add(h, _sum_up(space, C, R))
        alpha = tree.combine(C[T], space.Q)
        return alpha, h, products + space.rank + 2, clipped | over, evidence

    none = jnp.zeros((), jnp.int32)
    carry = (alpha, tree.zeros(lam), none, none > 0, no_evidence(rule.max_pieces, T, dtype))
    alpha, h, products, clipped, evidence = lax.fori_loop(0, pieces, piece, carry)
    h, below = _exact_start(path, lam, alpha, h)
    size = tree.positive(tree.norm(h))
    parts = estimate_error(evidence, below.astype(dtype))
    subspace, freezing = (part.astype(size.dtype) / size for part in parts)
    error = jnp.where(clipped, jnp.inf, subspace + freezing)
    return _Outcome(h, error, subspace, freezing, products + path.head, pieces)


def _exact_start(path: Path, lam: Hyper, alpha: PyTree, h: Hyper) -> tuple[Hyper, Array]:
    """Eq. 6 over the first steps and B_0; also the sum of the norms of their parts."""

    def step(i, carry):
        alpha, h, below = carry
        alpha, part = path.product(path.head - 1 - i)(alpha)
        return alpha, tree.add(h, part), below + tree.norm(part)

    carry = (alpha, h, jnp.zeros((), tree.widest(lam)))
    alpha, h, below = lax.fori_loop(0, path.head, step, carry)
    part = path.pull_start(alpha)
    return tree.add(h, part), below + tree.norm(part)


def _sum_up(space: Space, C: Float[Array, "T+1 m+1"], R: Int[Array, ""]) -> Hyper:
    """B (I + A + ... + A^{R-1}) a, from the B Q_j."""
    inside = (jnp.arange(C.shape[0] - 1, dtype=jnp.int32) < R)[:, None]
    return tree.combine(jnp.sum(jnp.where(inside, C[:-1, :-1], 0.0), axis=0), space.BQ)


def _grow(
    product: Product, space: Space, h: Hyper, first: Array, R: Array, T: int, rule: AdaptiveKrylov
) -> Space:
    """Arnoldi steps until the last vector no longer matters.

    Two tests: what the last vector may add to h in this piece; and how much of the cotangent
    it carries, each step counting with the number of steps that are still to come.
    """
    most, tol = space.H.shape[1], rule.rtol / 2

    def go_on(carry):
        space, done = carry
        return (space.rank < most) & ~space.closed & ~done

    def body(carry):
        space = extend(carry[0], product)
        C, _ = powers(space, R, T)
        i = jnp.arange(T, dtype=jnp.int32)
        only = lambda x: jnp.where(i < R, x, 0.0)
        last, sizes = only(jnp.abs(C[:T, space.rank])), jnp.linalg.norm(C, axis=1)
        lost = jnp.sum(last) * jnp.max(jax.vmap(tree.norm)(space.BQ)).astype(last.dtype)
        kept = tree.norm(tree.add(h, _sum_up(space, C, R))).astype(last.dtype)
        ahead = jnp.maximum(first + R - 1 - i, 0).astype(last.dtype)
        carried = jnp.sum(only(sizes[:T])) + first.astype(last.dtype) * sizes[T]
        done = (lost <= tol * kept) & (jnp.sum(last * ahead) <= tol * carried)
        return space, done & (space.rank >= min(LEAST, most))

    return lax.while_loop(go_on, body, (space, R < 1))[0]
