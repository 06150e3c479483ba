"""Piecewise Krylov back-propagation: all T terms at the price of a short truncation."""

import itertools

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import optax
from jax import lax

from ... import _tree as tree
from ..._dynamics import AbstractDynamics
from ..._errors import check, rules
from ..._errors.say import say_if_missed
from ..._loop import Back, back_over, capture, read_vjp, start_vjp
from ..._types import Context, Hyper, Params, Pull
from ..base import AbstractRule, Channel
from .arnoldi import grow
from .piece import Frozen, Sums, cross

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
    (a product is one vjp of a step; full reverse mode takes T), and one more in a piece where the
    loop swings to and fro, as gradient descent does at the edge of stability. The memory is
    `pieces + rank + K + head` states and `rank` cotangents of lam, whatever T is.

    **Arguments:**

    - `pieces`: how many pieces. More follow a Jacobian that moves.
    - `rank`: products in each piece. More follow a wide spectrum, that is, an inner
        problem that is badly conditioned.
    - `K`: take the last K steps exactly.
    - `head`: take the first `head` steps exactly: for loops that start violently.

    The estimate's `report` holds `products` and `subspace`. `subspace` estimates the part of the
    relative error that a larger rank would remove, from the Arnoldi residual, and what holding back
    growing modes has changed. It is infinite, and a warning says so, if the frozen steps expand so
    much that the whole cotangent had to be held back. It does not include the error of freezing
    the Jacobians: `AdaptiveKrylov` estimates both.

    !!! example

        >>> import bilevax as bx
        >>> bx.Krylov(pieces=1, rank=10)
        Krylov(pieces=1, rank=10)

    ??? cite "Reference"

        The derivation is in the documentation, "Krylov back-propagation".
    """

    pieces: int = eqx.field(default=1, static=True, converter=check.plain(int))
    rank: int = eqx.field(default=10, static=True, converter=check.plain(int))
    K: int = eqx.field(default=0, static=True, converter=check.plain(int))
    head: int = eqx.field(default=0, static=True, converter=check.plain(int))

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
        rules.exact_steps(self, K + head, T)
        cuts, nodes = layout(head, T - K, self.pieces)
        times = sorted({*range(head), *nodes, *range(T - K, T)})
        s_T, at, _ = capture(xi, lam, S, xi.start(lam, S), 0, T, jnp.asarray(times, jnp.int32))
        rules.real(tree.inexact(s_T), self)
        w, pull_read = read_vjp(xi, s_T)
        M = tree.size(tree.inexact(s_T))
        longest = int(max(np.diff(cuts), default=1))
        keep_B = tree.size(lam) <= 4 * M
        frozen = Frozen(xi, lam, S, at, min(self.rank, longest, M), longest, keep_B)

        def pull(alpha: Params):
            alpha = pull_read(alpha)
            end = back_over(frozen.product, Back(alpha, optax.tree.zeros_like(lam), T), K)
            sums = _compress(frozen, cuts, nodes, end)
            first = back_over(frozen.product, Back(sums.alpha, sums.h, head), head)
            h = optax.tree.add(first.h, start_vjp(xi, lam, S, first.alpha))  # h_{-1}
            size = tree.norm(h).astype(sums.lost.dtype)
            subspace = jnp.where(sums.clipped, jnp.inf, sums.lost / tree.positive(size))
            say_if_missed(self, EXPANDS, subspace, sums.clipped)
            return h, {"products": sums.products + K + head, "subspace": subspace}

        return w, pull

    def sees(self) -> Channel:
        return Channel.START | Channel.STEP


def _compress(frozen: Frozen, cuts: np.ndarray, nodes: list[int], end: Back) -> Sums:
    """The pieces, the last first."""
    sums = Sums.first(end.alpha, end.h, jnp.zeros((), jnp.int32))
    if not nodes:
        return sums
    build = lambda space, product: grow(space, product, frozen.rank)

    def piece(sums: Sums, when):
        node, first, end = when
        new = cross(frozen, node, end - first, end - 1 - node, sums.alpha, sums.doubt, build)
        return sums.after(new, new.lost, new.products), None

    newest_first = lambda x: jnp.asarray(x[::-1], jnp.int32)
    return lax.scan(piece, sums, tuple(map(newest_first, (nodes, cuts[:-1], cuts[1:]))))[0]


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
