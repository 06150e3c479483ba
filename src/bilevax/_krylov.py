"""Piecewise Krylov back-propagation: all T terms at the price of a short truncation."""

import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from . import _check as check
from . import _tree as tree
from ._arnoldi import build, power_sum
from ._dynamics import AbstractDynamics
from ._reverse import start_vjp, sweep
from ._rule import AbstractRule, Channel
from ._say import say_if_missed
from ._types import Context, Hyper, Params, Pull
from ._unroll import capture, read_vjp, step_vjp

EXPANDS = (
    "The frozen steps of a piece expand cotangents from step to step and were held back, so "
    "this hypergradient is not to be trusted: raise pieces or head, or use Reverse(segment=...)."
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
        Krylov(pieces=1, rank=10, K=0, head=0)

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

    def vjp(self, xi: AbstractDynamics, lam: Hyper, S: Context, T: int) -> tuple[Params, Pull]:
        check.depth(self, self.K + self.head, T)
        cuts, nodes = layout(self.head, T - self.K, self.pieces)
        exact = [*range(self.head), *range(T - self.K, T)]
        times = jnp.asarray(sorted({*exact, *nodes}), jnp.int32)
        s_T, at, _ = capture(xi, lam, S, xi.start(lam, S), 0, T, times)
        w, pull_read = read_vjp(xi, s_T)
        longest = int(max(np.diff(cuts), default=0))
        rank = min(self.rank, longest, tree.size(tree.inexact(s_T)))
        keep_B = tree.size(lam) <= 4 * tree.size(tree.inexact(s_T))

        def piece(carry, when):
            """R frozen steps: a -> A^R a, h -> h + B (I + ... + A^{R-1}) a."""
            alpha, h, lost, clipped = carry
            node, R = when
            product = step_vjp(xi, lam, S, at(node), node)
            space = build(product, alpha, lam, rank, keep_B)
            total, last, over = power_sum(space, R, longest)
            if keep_B:
                dh = tree.combine(total[:-1], space.BQ)
            else:  # rank cotangents of lam would outweigh the states: one more product
                dh = product(tree.combine(total, space.Q))[1]
            missing = tree.norm(dh) * jnp.abs(total[-1]) / _positive(jnp.linalg.norm(total))
            alpha = tree.combine(last, space.Q)
            return (alpha, tree.add(h, dh), lost + missing, clipped | over), None

        def pull(alpha: Params):
            history = lambda a, b: jax.vmap(at)(jnp.arange(a, b, dtype=jnp.int32))
            alpha, h = pull_read(alpha), tree.zeros(lam)
            if self.K:
                alpha, h = sweep(xi, lam, S, history(T - self.K, T), T, alpha, h)
            as_int = lambda x: jnp.asarray(x[::-1], jnp.int32)
            pieces = (as_int(nodes), as_int(np.diff(cuts)))
            carry = (alpha, h, jnp.zeros((), tree.widest(lam)), jnp.asarray(False))
            if nodes:
                carry, _ = lax.scan(piece, carry, pieces)
            alpha, h, lost, clipped = carry
            if self.head:
                alpha, h = sweep(xi, lam, S, history(0, self.head), self.head, alpha, h)
            h = tree.add(h, start_vjp(xi, lam, S, alpha))  # h_{-1} = h_0 + B_0 alpha_0
            products = len(nodes) * (rank + (not keep_B)) + len(exact)
            subspace = jnp.where(clipped, jnp.inf, lost / _positive(tree.norm(h)))
            say_if_missed(self, EXPANDS, subspace, clipped)
            return h, {"products": jnp.asarray(products), "subspace": subspace}

        return w, pull

    def sees(self) -> Channel:
        return Channel.START | Channel.STEP


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


def _positive(x):
    return jnp.where(x > 0, x, jnp.ones_like(x))
