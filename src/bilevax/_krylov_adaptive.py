"""Krylov back-propagation that is given an accuracy and finds pieces and rank by itself."""

from collections.abc import Callable
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
from ._krylov_error import Evidence, estimate_error, side_weights
from ._reverse import start_vjp
from ._rule import AbstractRule, Channel
from ._say import say_if_missed
from ._types import Context, Hyper, Params, Pull
from ._unroll import capture, read_vjp, record, step_vjp

HEAD = 8
"""The most first steps that are taken exactly."""

VIOLENT = 1.4
"""A step is violent if it moves the state this much further than the next one."""

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
        AdaptiveKrylov(rtol=0.05, max_pieces=4, max_rank=16)

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
        path = _walk(xi, lam, S, T, self.max_pieces)
        w, pull_read = read_vjp(xi, path.end)

        def pull(alpha: Params):
            alpha = pull_read(alpha)
            attempt = lambda pieces: _attempt(self, xi, lam, S, T, path, alpha, pieces)

            def body(carry):
                best, pieces, products, _ = carry
                new = attempt(pieces)
                better = (new.error < best.error) | (best.pieces == 0)
                best = jax.tree.map(lambda a, b: jnp.where(better, a, b), new, best)
                return best, 2 * pieces, products + new.products, best.error <= self.rtol

            go_on = lambda carry: (carry[1] <= self.max_pieces) & ~carry[3]
            nothing = _nothing(lam)
            one, none = jnp.ones((), jnp.int32), jnp.zeros((), jnp.int32)
            best, _, products, _ = lax.while_loop(go_on, body, (nothing, one, none, none > 0))
            report = best._asdict() | {"products": products, "head": path.head}
            report["error"] = say_if_missed(self, REMEDY, best.error, self.rtol)
            return report.pop("h"), report

        return w, pull

    def sees(self) -> Channel:
        return Channel.START | Channel.STEP


class _Path(NamedTuple):
    """What the forward pass leaves behind."""

    end: PyTree
    at: Callable[[Int[Array, ""]], PyTree]
    """t -> s_t, for the first steps and for every node and end of a piece."""
    length: Float[Array, " T+1"]
    """How far the state has travelled before step t."""
    head: Int[Array, ""]
    """How many first steps are to be exact."""


class _Outcome(NamedTuple):
    """One attempt with a given number of pieces."""

    h: Hyper
    error: Float[Array, ""]
    subspace: Float[Array, ""]
    freezing: Float[Array, ""]
    products: Int[Array, ""]
    pieces: Int[Array, ""]


def _walk(xi: AbstractDynamics, lam: Hyper, S: Context, T: int, max_pieces: int) -> _Path:
    """The inner loop, keeping the iterates that any number of pieces may ask for."""
    begun = min(HEAD + 1, T)
    s, first = record(xi, lam, S, xi.start(lam, S), 0, begun)
    moves = jax.vmap(tree.norm)(_steps(first, s))
    head = jnp.minimum(_violent_steps(moves), T)
    levels = [2**i for i in range(max_pieces.bit_length())]
    marks = [jnp.ravel(jnp.stack(_cut(head, T, p, jnp.arange(p)))) for p in levels]
    times = jnp.sort(jnp.maximum(jnp.concatenate(marks), begun))
    s, late, more = capture(xi, lam, S, s, begun, T - begun, times)

    def at(t):
        early = jax.tree.map(lambda a: a[jnp.clip(t, 0, begun - 1)], first)
        return jax.tree.map(lambda a, b: jnp.where(t < begun, a, b), early, late(t))

    moves = jnp.concatenate([jnp.zeros_like(moves[:1]), moves, more])
    return _Path(s, at, jnp.cumsum(moves), head)


def _steps(states: PyTree, end: PyTree) -> PyTree:
    """s_{t+1} - s_t for stacked states and the one behind them."""
    difference = lambda a, b: jnp.diff(jnp.concatenate([a, b[None]]), axis=0)
    return jax.tree.map(difference, tree.inexact(states), tree.inexact(end))


def _violent_steps(moves: Float[Array, " n"]) -> Int[Array, ""]:
    """The first steps up to one after the last violent one; 0 if none is violent."""
    violent = moves[:-1] > VIOLENT * moves[1:]
    upto = jnp.arange(moves.shape[0] - 1, dtype=jnp.int32) + 2
    return jnp.minimum(jnp.max(jnp.where(violent, upto, 0), initial=0), HEAD)


def _cut(
    head: Int[Array, ""], T: int, pieces: int | Int[Array, ""], j: Int[Array, "..."]
) -> tuple[Int[Array, "..."], Int[Array, "..."], Int[Array, "..."]]:
    """First step, node and last step of the j-th of the equal pieces of head, ..., T - 1.

    The node is the mean of t with the weight t, as in `Krylov`; behind violent first steps,
    whose traces fade along the piece, it is the middle.
    """
    place = lambda j: head + ((T - head) * j) // pieces
    a, b = place(j), place(j + 1)
    x, y = a.astype(float), b.astype(float)
    ramp = 2 / 3 * (x * x + x * y + y * y) / jnp.maximum(x + y, 1.0)
    centre = jnp.where(head > 0, (x + y) / 2, ramp)
    node = jnp.round(centre - 0.5).astype(a.dtype)
    last = jnp.maximum(b - 1, a)
    return a, jnp.clip(node, a, last), last


def _attempt(rule, xi, lam, S, T: int, path: _Path, alpha, pieces) -> _Outcome:
    """The hypergradient with this many pieces, and what it is worth."""
    rank = min(rule.max_rank, T, tree.size(tree.inexact(path.end)))
    dtype = tree.widest(alpha)

    def piece(i, carry):
        alpha, h, products, clipped, evidence = carry
        j = pieces - 1 - i
        first, node, last = _cut(path.head, T, pieces, j)
        R = jnp.where(path.head < T, last + 1 - first, 0)
        product = lambda t: step_vjp(xi, lam, S, path.at(t), t)
        space = _grow(product(node), alpha, lam, rank, first, R, h, T, rule.rtol / 2)
        C, over = powers(space, R, T)
        side = side_weights(path.length, first, node, last).astype(dtype)
        row = _evidence(space, C, R, side, product(first), product(last))
        evidence = jax.tree.map(lambda a, b: a.at[j].set(b), evidence, row)
        inside = (jnp.arange(T) < R)[:, None]
        h = tree.add(h, tree.combine(jnp.sum(jnp.where(inside, C[:T, :-1], 0.0), 0), space.BQ))
        alpha = tree.combine(C[T], space.Q)
        return alpha, h, products + space.rank + 2, clipped | over, evidence

    none = jnp.zeros((), jnp.int32)
    evidence = _no_evidence(rule.max_pieces, T, dtype)
    carry = (alpha, tree.zeros(lam), none, none > 0, evidence)
    alpha, h, products, clipped, evidence = lax.fori_loop(0, pieces, piece, carry)
    h, below = _exact_start(xi, lam, S, path, alpha, h)
    size = tree.norm(h)
    size = jnp.where(size > 0, size, jnp.ones_like(size))
    subspace, freezing = (e / size for e in estimate_error(evidence, below))
    error = jnp.where(clipped, jnp.inf, subspace + freezing)
    return _Outcome(h, error, subspace, freezing, products + path.head, pieces)


def _exact_start(xi, lam, S, path: _Path, alpha, h):
    """Eq. 6 over the first steps and B_0; also the sum of the norms of their parts."""

    def step(i, carry):
        alpha, h, below = carry
        t = path.head - 1 - i
        alpha, part = step_vjp(xi, lam, S, path.at(t), t)(alpha)
        return alpha, tree.add(h, part), below + tree.norm(part)

    carry = (alpha, h, jnp.zeros((), tree.widest(lam)))
    alpha, h, below = lax.fori_loop(0, path.head, step, carry)
    part = start_vjp(xi, lam, S, alpha)
    return tree.add(h, part), below + tree.norm(part)


def _grow(product: Product, alpha, lam, rank: int, first, R, h, T: int, tol: float) -> Space:
    """An Arnoldi space that stops growing when its last vector no longer matters.

    Two tests: what the last vector may add to h in this piece; and how much of the cotangent
    it carries, each step counting with the number of steps that are still to come.
    """

    def go_on(carry):
        space, done = carry
        return (space.rank < rank) & ~space.closed & ~done

    def body(carry):
        space = extend(carry[0], product)
        C, _ = powers(space, R, T)
        k, i = space.rank, jnp.arange(T)
        inside = i < R
        last = jnp.where(inside, jnp.abs(C[:T, k]), 0.0)
        sizes = jnp.linalg.norm(C, axis=1)
        kept = tree.combine(jnp.sum(jnp.where(inside[:, None], C[:T, :-1], 0.0), 0), space.BQ)
        lost = jnp.sum(last) * jnp.max(_row_norms(space.BQ))
        carried = jnp.sum(jnp.where(inside, sizes[:T], 0.0)) + first * sizes[T]
        small = lost <= tol * tree.norm(tree.add(h, kept))
        faint = jnp.sum(last * jnp.maximum(first + R - 1 - i, 0)) <= tol * carried
        return space, small & faint & (k >= min(LEAST, rank))

    return lax.while_loop(go_on, body, (begin(alpha, lam, rank, True), R < 1))[0]


def _evidence(space: Space, C, R, side, early: Product, late: Product) -> Evidence:
    """Two products, at the ends of the piece, against the frozen pair."""
    T = C.shape[0] - 1
    inside = jnp.arange(T) < R
    sizes = jnp.linalg.norm(C, axis=1)
    gram = jax.vmap(tree.coordinates, (None, 0))(space.BQ, space.BQ)
    parts = jnp.einsum("ri,ij,rj->r", C[:T, :-1], gram, C[:T, :-1])

    def drift(product, i):
        size = jnp.where(sizes[i] > 0, sizes[i], 1.0)
        a, b = product(tree.combine(C[i] / size, space.Q))
        a = tree.sub(a, tree.combine(C[i + 1] / size, space.Q))
        return a, tree.sub(b, tree.combine(C[i, :-1] / size, space.BQ))

    ends = drift(late, 0), drift(early, jnp.maximum(R - 1, 0))
    table = lambda n: jnp.stack(
        [jnp.stack([tree.dot(x[n], y[n]) for y in ends]) for x in ends]
    ).astype(C.dtype)
    last = jnp.abs(jnp.take(C[:T], space.rank, axis=1))
    return Evidence(
        size=jnp.where(inside, sizes[:T], 0.0),
        after=jnp.where(inside, sizes[1:], 0.0),
        part=jnp.where(inside, jnp.sqrt(jnp.maximum(parts, 0.0)), 0.0).astype(C.dtype),
        missing=jnp.where(inside, last, 0.0),
        norm_A=jnp.max(jnp.linalg.norm(space.H, axis=0)),
        norm_B=jnp.max(_row_norms(space.BQ)).astype(C.dtype),
        side=side,
        drift_A=table(0),
        drift_B=table(1),
    )


def _row_norms(Q: PyTree) -> Float[Array, " m"]:
    return jax.vmap(tree.norm)(Q)


def _no_evidence(pieces: int, T: int, dtype) -> Evidence:
    long, short = jnp.zeros((pieces, T), dtype), jnp.zeros(pieces, dtype)
    side, gram = jnp.zeros((pieces, 2, T), dtype), jnp.zeros((pieces, 2, 2), dtype)
    return Evidence(long, long, long, long, short, short, side, gram, gram)


def _nothing(lam: Hyper) -> _Outcome:
    inf = jnp.asarray(jnp.inf, tree.widest(lam))
    none = jnp.zeros((), jnp.int32)
    return _Outcome(tree.zeros(lam), inf, inf, inf, none, none)
