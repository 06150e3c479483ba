"""Krylov back-propagation that is given an accuracy and finds pieces and rank by itself."""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jax import lax
from jaxtyping import Array, Float, Int, PyTree

from ... import _tree as tree
from ..._dynamics import AbstractDynamics
from ..._errors import check, rules
from ..._errors.say import say_if_missed
from ..._loop import Back, back_over, read_vjp
from ..._types import Context, Hyper, Params, Pull
from ..base import AbstractRule, Channel
from .error import estimate_error, gather, no_evidence, side_weights, widen
from .grow import LEAST, grow_to
from .path import Path, cut, pieces_table, walk
from .piece import Frozen, Sums, cross

CAUTION = 10.0
"""By how much an estimate may be too high."""

REMEDY = (
    "The Jacobian moves too much along the loop (Adam, minibatches, a violent start), or its "
    "spectrum is too wide: raise rtol, max_pieces or max_rank, or use Reverse(segment=...)."
)


class AdaptiveKrylov(AbstractRule):
    """`Krylov` to a relative accuracy: it chooses exact first steps, pieces and rank.

    The rule takes the first steps exactly for as long as they are violent. It tries the rest as
    one piece, and grows the space of that piece until the residual is small. The estimated error
    has two parts: one for the subspace, from the Arnoldi residuals, and one for freezing the
    Jacobians, from two more products in each piece, with the Jacobians at its two ends. If the
    error is above `rtol`, the second part says how many pieces to try next. The rule stops trying
    if that would take T products in all, or if `max_pieces` pieces are not expected to reach
    `rtol` either.

    **Arguments:**

    - `rtol`: the relative error of the pullback to aim for.
    - `max_pieces`: the most pieces to try; a power of two.
    - `max_rank`: the most products in a piece, not counting the two of the estimate.
    - `fallback`: the rule to use instead where the estimated error is above `rtol`, as in
        `Reverse(segment=10)`: what comes back is then within the estimated tolerance, or exact.
        It costs nothing where it is not needed, except under `jax.vmap`. Default: none.

    The estimate's `report` holds `error`, the estimated relative error, and its parts `subspace`
    and `freezing`: the error is e (1 + min(e, 1/2)), where e is their sum. It also holds
    `products`, the number of all that were taken, and the `pieces` and `head` chosen. If `error`
    is above `rtol`, a warning says so and the best attempt is returned. With a `fallback` there is
    no warning: `fallback` in the report is 1 where it was used, and `error` is that of the attempt.
    Memory: about 6 `max_pieces` + `max_rank` + 9 states and T numbers.

    It has derivatives by forward mode only (its loop has no fixed length).

    !!! example

        >>> import bilevax as bx
        >>> bx.AdaptiveKrylov(rtol=0.05)
        AdaptiveKrylov(rtol=0.05)

    ??? cite "Reference"

        The derivation is in the documentation, "Krylov back-propagation".
    """

    rtol: float = eqx.field(default=0.1, static=True, converter=check.plain(float))
    max_pieces: int = eqx.field(default=4, static=True, converter=check.plain(int))
    max_rank: int = eqx.field(default=16, static=True, converter=check.plain(int))
    fallback: AbstractRule | None = None

    def __check_init__(self):
        check.positive(self.rtol, "rtol", "give a relative error, as in rtol=0.1")
        rules.power_of_two(self.max_pieces, "max_pieces")
        check.integer(self.max_rank, "max_rank", "give the most products in a piece")
        if self.fallback is not None:
            how = "an exact rule, as in bx.Reverse(segment=10)"
            check.instance(self.fallback, AbstractRule, "fallback", how)
            rules.exact("fallback", self.fallback, Channel.EACH in self.fallback.sees())

    def vjp(self, xi: AbstractDynamics, lam: Hyper, S: Context, T: int) -> tuple[Params, Pull]:
        table = pieces_table(T, self.max_pieces)
        path = walk(xi, lam, S, T, table)
        rules.real(tree.inexact(path.end), self)
        w, pull_read = read_vjp(xi, path.end)
        rank = min(self.max_rank, T, tree.size(tree.inexact(path.end)))
        frozen = Frozen(xi, lam, S, path.at, rank, T, keep_B=True)

        def pull(alpha_w: Params):
            alpha = pull_read(alpha_w)

            def body(carry):
                best, level, products = carry
                room = T - 1 - products - path.head
                new = _attempt(self, path, frozen, alpha, jnp.asarray(table), level, room)
                better = (new.error < best.error) | (best.pieces == 0)
                best = optax.tree.where(better, new, best)
                return best, _next(self, new, level), products + new.products

            def go_on(carry):  # T products would be better spent on full reverse mode
                best, level, products = carry
                fits = (T - 1 - products - path.head) >> level >= LEAST + 2
                return (best.pieces == 0) | ((level < table.shape[0]) & fits)

            none = jnp.zeros((), jnp.int32)
            nothing = _nothing(lam, tree.widest(alpha, jnp.float32))
            best, _, products = lax.while_loop(go_on, body, (nothing, none, none))
            report = best._asdict() | {"products": products, "head": path.head}
            h, missed = rules.forward_only(self, report.pop("h")), ~(best.error <= self.rtol)
            if self.fallback is None:
                say_if_missed(self, REMEDY, best.error, missed)
                return h, report
            exactly = lambda: self.fallback.vjp(xi, lam, S, T)[1](alpha_w)[0]  # pyright: ignore
            report["fallback"] = missed.astype(jnp.int32)
            return lax.cond(missed, exactly, lambda: h), report

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


def _nothing(lam: Hyper, dtype) -> _Outcome:
    inf = jnp.asarray(jnp.inf, dtype)
    none = jnp.zeros((), jnp.int32)
    return _Outcome(optax.tree.zeros_like(lam), inf, inf, inf, none, none)


def _next(rule: AdaptiveKrylov, new: _Outcome, level: Int[Array, ""]) -> Int[Array, ""]:
    """The level, log2 of the pieces, to try after this outcome; beyond the last one: stop.

    With n times the pieces, freezing costs 1/n at least, and 1/n^2 at best where every node is
    well placed. n^(-3/2) chooses, n^(-2) tells what is out of reach, given that the estimate is
    mostly too high. An attempt that was held back says nothing but that its pieces were too
    long.
    """
    top = rule.max_pieces.bit_length() - 1
    need = new.freezing / (rule.rtol / 2)  # the other half is for the subspace
    held = jnp.isinf(new.error)
    doublings = jnp.ceil(jnp.log2(jnp.clip(need, 2.0, 4.0**top)) / 1.5)
    wanted = level + doublings.astype(level.dtype)
    further = jnp.where(held, top, jnp.minimum(wanted, top))
    hopeless = ~held & (need > CAUTION * 4.0 ** (top - level).astype(need.dtype))
    stop = (new.error <= rule.rtol) | hopeless | (level >= top)
    return jnp.where(stop, top + 1, further).astype(level.dtype)


def _attempt(
    rule: AdaptiveKrylov,
    path: Path,
    frozen: Frozen,
    alpha: PyTree,
    table: Int[Array, "levels pieces 3"],
    level: Int[Array, ""],
    room: Int[Array, ""],
) -> _Outcome:
    """The hypergradient with 2^level pieces and up to `room` products, and what it is worth."""
    lam, T = frozen.lam, frozen.longest
    dtype, pieces = tree.widest(alpha, jnp.float32), jnp.left_shift(1, level)
    most = jnp.clip((room >> level) - 2, min(LEAST, frozen.rank), frozen.rank)
    tol = rule.rtol / 2 / jnp.sqrt(pieces.astype(dtype))  # what the spaces lose adds up

    def piece(i, sums: Sums) -> Sums:
        j = pieces - 1 - i  # the last piece first
        first, node, last, R = cut(table[level, j], path.head)
        build = lambda space, product: grow_to(product, space, sums.h, first, R, T, tol, most)
        new = cross(frozen, node, R, last - node, sums.alpha, sums.doubt, build, keep=True)
        side = side_weights(path.length, path.drawn, first, node, last)
        C = new.powers.each
        row = gather(new.space, C, R, side, path.product, first, last)
        evidence = jax.tree.map(lambda a, b: a.at[j].set(b), sums.evidence, row)
        held, taken = jnp.where(new.doubt > 0, new.lost, 0.0), jnp.where(R > 0, new.products + 2, 0)
        return sums.after(new, held, taken)._replace(evidence=evidence)

    sums = Sums.first(alpha, optax.tree.zeros_like(lam), path.head)
    sums = sums._replace(evidence=no_evidence(table.shape[1], T, dtype))
    sums = lax.fori_loop(0, pieces, piece, sums)
    h, below = _exact_start(path, lam, sums.alpha, sums.h)
    size = tree.positive(tree.norm(h)).astype(dtype)
    subspace, freezing = estimate_error(sums.evidence, below.astype(dtype))
    subspace, freezing = (subspace + sums.lost) / size, freezing / size
    blank = (tree.norm(h) == 0) & (tree.norm(alpha) > 0)  # nothing has converged to zero
    blind = sums.clipped | blank | path.jumps
    error = jnp.where(blind, jnp.inf, widen(subspace + freezing))
    return _Outcome(h, error, subspace, freezing, sums.products, pieces)


def _exact_start(path: Path, lam: Hyper, alpha: PyTree, h: Hyper) -> tuple[Hyper, Array]:
    """Eq. 6 over the first steps and B_0; also the sum of the norms of their parts."""
    add = lambda before, part, _: before.gathered + tree.norm(part)
    first = Back(alpha, h, path.head, jnp.zeros((), tree.widest(lam)))
    start = back_over(path.product, first, path.head, add)
    part = path.pull_start(start.alpha)
    return optax.tree.add(start.h, part), start.gathered + tree.norm(part)
