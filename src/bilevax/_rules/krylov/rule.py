"""Piecewise Krylov back-propagation: all T terms at the price of a short truncation."""

import itertools
from collections.abc import Callable
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float, Int, PyTree

from ... import _tree as tree
from ..._dynamics import AbstractDynamics
from ..._errors import check
from ..._errors.say import say_if_missed
from ..._loop import capture, read_vjp, step_vjp
from ..._types import Context, Hyper, Params, Pull, State, Time
from ..base import AbstractRule, Channel
from ..reverse import start_vjp
from .arnoldi import Product, Space, absorb, begin, grow, last, power_sum, ritz
from .swing import LEAST, Swing, direction, feel, middle, no_swing

EXPANDS = (
    "The frozen steps of a piece expand cotangents from step to step and were held back, so "
    "this hypergradient is not to be trusted. With Adam, RMSprop or minibatches inside that is "
    "usual: use Reverse(segment=...). Otherwise raising pieces or head may help."
)


class Krylov(AbstractRule):
    """All terms of Eq. 5, with the Jacobians frozen over pieces of the horizon.

    The horizon is cut into pieces. Inside a piece A and B are those of one iterate, and
    the piece acts on a cotangent as a polynomial in A, which a Krylov space of a few
    vectors reproduces almost exactly. The price is `pieces * rank + K + head` products
    (a product is one vjp of a step; full reverse mode takes T), the memory is
    `pieces + rank + K + head` states and `rank` cotangents of lam, whatever T is.

    **Arguments:**

    - `pieces`: how many pieces. More follow a Jacobian that moves.
    - `rank`: products in each piece. More follow a wide spectrum, that is, an inner
        problem that is badly conditioned.
    - `K`: take the last K steps exactly.
    - `head`: take the first `head` steps exactly: for loops that start violently.

    The estimate's `report` holds `products`, and `subspace`, the part of the relative error
    that a larger rank would remove, as the Arnoldi residual tells it; it is infinite, with a
    warning, where the frozen steps expand so much that they had to be held back. What freezing
    the Jacobians does is not in it: `AdaptiveKrylov` estimates both.

    !!! example

        >>> import bilevax as bx
        >>> bx.Krylov(pieces=1, rank=10)
        Krylov(pieces=1, rank=10)

    ??? cite "Reference"

        The derivation is in the documentation, "Krylov back-propagation".
    """

    pieces: int = eqx.field(default=2, static=True)
    rank: int = eqx.field(default=4, static=True)
    K: int = eqx.field(default=0, static=True)
    head: int = eqx.field(default=0, static=True)

    def __check_init__(self):
        check.integer(self.pieces, "pieces", "one piece covers the whole horizon")
        check.integer(self.rank, "rank", "give the products in each piece")
        check.integer(self.K, "K", "0 takes no last step exactly", least=0)
        check.integer(self.head, "head", "0 takes no first step exactly", least=0)

    def __repr__(self) -> str:
        """With `pieces` and `rank` even where they are the defaults: they are the price."""
        exact = "".join(f", {k}={n}" for k, n in (("K", self.K), ("head", self.head)) if n)
        return f"Krylov(pieces={self.pieces}, rank={self.rank}{exact})"

    def vjp(self, xi: AbstractDynamics, lam: Hyper, S: Context, T: int) -> tuple[Params, Pull]:
        K, head = self.K, self.head
        check.depth(self, K + head, T)
        cuts, marks = layout(head, T - K, self.pieces)
        times = sorted({*range(head), *marks, *range(T - K, T)})
        s_T, at, _ = capture(xi, lam, S, xi.start(lam, S), 0, T, jnp.asarray(times, jnp.int32))
        w, pull_read = read_vjp(xi, s_T)
        linearise = lambda s, t: step_vjp(xi, lam, S, s, t)
        product = lambda t: linearise(at(t), t)
        M = tree.size(tree.inexact(s_T))
        rank = min(self.rank, int(max(np.diff(cuts), default=1)), M)
        keep_B = tree.size(lam) <= 4 * M

        centre = lambda t, R: middle(xi, lam, S, at(t), t, rank < R)
        nodes = _Nodes(at, linearise, centre, rank, keep_B, keep_B and LEAST <= rank < M)

        def pull(alpha: Params):
            alpha, h = _exactly(product, T, K, pull_read(alpha), tree.zeros(lam))
            last = _Back(alpha, h, jnp.zeros((), tree.widest(lam)), jnp.asarray(False))
            back = _compress(nodes, cuts, marks, last)
            alpha, h = _exactly(product, head, head, back.alpha, back.h)
            h = tree.add(h, start_vjp(xi, lam, S, alpha))  # h_{-1} = h_0 + B_0 alpha_0
            subspace = jnp.where(back.clipped, jnp.inf, back.lost / tree.positive(tree.norm(h)))
            say_if_missed(self, EXPANDS, subspace, back.clipped)
            products = jnp.asarray(len(marks) * (rank + (not keep_B)) + K + head)
            return h, {"products": products, "subspace": subspace}

        return w, pull

    def sees(self) -> Channel:
        return Channel.START | Channel.STEP


class _Back(NamedTuple):
    """Where the way back stands, and what was lost on it."""

    alpha: PyTree
    h: Hyper
    lost: Float[Array, ""]
    clipped: Bool[Array, ""]


def _exactly(
    product: Callable[[Time], Product], t: int, n: int, alpha: PyTree, h: Hyper
) -> tuple[PyTree, Hyper]:
    """Eq. 6 over the n steps before s_t."""

    def body(i, carry):
        alpha, h = carry
        alpha, B_alpha = product(jnp.asarray(t - 1 - i, jnp.int32))(alpha)
        return alpha, tree.add(h, B_alpha)

    return lax.fori_loop(0, n, body, (alpha, h))


class _Nodes(NamedTuple):
    """Where and how the steps of a piece are linearised."""

    at: Callable[[Time], State]
    """An iterate that was kept."""
    linearise: Callable[[State, Time], Product]
    centre: Callable[[Time, Int[Array, ""]], tuple[State, Bool[Array, ""]]]
    """The middle of a swing, if the loop swings there, and whether it does."""
    rank: int
    keep_B: bool
    may_swing: bool


def _compress(nodes: _Nodes, cuts: np.ndarray, times: list[int], back: _Back) -> _Back:
    """The pieces, the last first: a -> A^R a, h -> h + B (I + A + ... + A^{R-1}) a."""
    if not times:
        return back
    longest = int(max(np.diff(cuts)))

    def piece(back: _Back, when):
        node, first, end = when
        space, swing, at_node = _explore(nodes, node, end - first, end - 1 - node, back)
        (total, swung), end_c, over = power_sum(space, end - first, longest, swing.D, swing.sign)
        if nodes.keep_B:
            dh = tree.combine(total[:-1], space.BQ)
            dh = tree.add(dh, tree.scale(swung @ swing.y, swing.Ey))
        else:  # rank cotangents of lam would outweigh the states: one more product
            dh = at_node(tree.combine(total, space.Q))[1]
        missing = tree.norm(dh) * jnp.abs(total[space.rank]) / tree.positive(jnp.linalg.norm(total))
        alpha, h = tree.combine(end_c, space.Q), tree.add(back.h, dh)
        return _Back(alpha, h, back.lost + missing, back.clipped | over), None

    newest_first = lambda x: jnp.asarray(x[::-1], jnp.int32)
    return lax.scan(piece, back, tuple(map(newest_first, (times, cuts[:-1], cuts[1:]))))[0]


def _explore(
    nodes: _Nodes, node: Time, R: Int[Array, ""], later: Int[Array, ""], back: _Back
) -> tuple[Space, Swing, Product]:
    """The Krylov space of a piece whose node lies `later` steps before its end.

    Where the loop swings, the last product measures the swing instead of extending the space;
    not where the space is exact without (R <= rank).
    """
    rank, s = nodes.rank, nodes.at(node)
    space = begin(back.alpha, back.h, rank, nodes.keep_B)
    if not nodes.may_swing:
        at_node = nodes.linearise(s, node)
        return grow(space, at_node, rank), no_swing(space, back.h), at_node
    half, turns = nodes.centre(node, R)
    at_node = nodes.linearise(half, node)
    space = grow(space, at_node, rank - 1)
    swings = turns & ritz(space)[0] & ~space.closed
    choose = lambda a, b: jax.tree.map(lambda a, b: jnp.where(swings, a, b), a, b)
    y = direction(space)
    q = choose(tree.combine(y, space.Q), last(space))
    v, Bv = nodes.linearise(choose(s, half), node)(q)  # one product, for the one or the other
    swing = feel(space, y, v, Bv, later, swings)
    return absorb(space, v, Bv, ~swings), swing, at_node


def layout(first: int, last: int, pieces: int) -> tuple[np.ndarray, list[int]]:
    """Cuts of the steps first, ..., last - 1 into pieces, and the node of each piece.

    A node is the mean of t over its piece with the weight t + 1/2. The effect of A_t on h is
    proportional to d s_t / d lam, which grows like t along slow directions: an error late in
    the horizon costs more than one early in it.
    """
    pieces = min(pieces, last - first)
    cuts = np.round(np.linspace(first, last, pieces + 1)).astype(np.int32)
    nodes = []
    for a, b in itertools.pairwise(cuts):
        t = np.arange(a, b)
        nodes.append(int(np.round(np.sum((t + 0.5) * t) / np.sum(t + 0.5))))
    return cuts, nodes
