"""Krylov spaces of one linearised step, and powers of the step inside them.

Freeze A and B over R steps. What the steps do to a cotangent a is then a polynomial in A,

    a_out = A^R a ,        dh = B (I + A + ... + A^{R-1}) a ,

and lives, up to a small residual, in the space of a, A a, ..., A^m a. With an orthonormal
basis Q of it, Q_0 = a/|a|, and A Q_j = sum_i H_ij Q_i, the vector A^i a has coordinates

    C_0 = |a| e_0 ,        C_{i+1} = [H 0] C_i .

All m + 1 basis vectors are used (Saad's corrected scheme): m products are then exact for
R <= m, where the plain scheme is exact for R < m only.
"""

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax import lax
from jaxtyping import Array, Bool, Float, Int, PyTree

from ... import _tree as tree
from ..._types import Hyper, Product

GROWTH = math.e
"""How much |A^i a| may exceed the powers that are known exactly. A frozen Jacobian with one
eigenvalue above 1 would otherwise be raised to a power that no real trajectory has."""


class Space(NamedTuple):
    """A Krylov space under construction; rows that are not built yet are zero."""

    length: Float[Array, ""]
    """|a|."""
    Q: PyTree
    """m + 1 orthonormal cotangents of the state, stacked."""
    H: Float[Array, "m+1 m"]
    """<Q_i, A Q_j>: upper Hessenberg, in 32 bits or more."""
    BQ: Hyper | None
    """B Q_j for j < m, stacked; None where only A is wanted."""
    rank: Int[Array, ""]
    """How many products have been taken."""
    closed: Bool[Array, ""]
    """The space is invariant: everything computed in it is exact."""


def begin(a: PyTree, lam: Hyper, rank: int, keep_B: bool) -> Space:
    length = tree.norm(a)
    unit = tree.scale(1 / tree.positive(length), a)
    length = length.astype(tree.widest(a, jnp.float32))
    Q = tree.put(tree.stack_of_zeros(rank + 1, a), 0, unit)
    H = jnp.zeros((rank + 1, rank), length.dtype)
    BQ = tree.stack_of_zeros(rank, lam) if keep_B else None
    return Space(length, Q, H, BQ, jnp.zeros((), jnp.int32), length == 0)


def extend(space: Space, product: Product) -> Space:
    """One more Arnoldi step: one product gives A Q_j and B Q_j together."""
    j = space.rank
    v, Bq = product(jax.tree.map(lambda q: q[j], space.Q))
    before, column = tree.norm(v), jnp.zeros_like(space.H[:, 0])
    for _ in range(2):  # twice is enough, in float32 too
        c = tree.coordinates(space.Q, v)
        v = optax.tree.sub(v, tree.combine(c, space.Q))
        column = column + c.astype(column.dtype)
    beta = tree.norm(v)
    closed = space.closed | (beta <= 10 * jnp.finfo(beta.dtype).eps * before)
    inverse = jnp.where(closed, 0.0, 1 / tree.positive(beta))
    column = column.at[j + 1].set(jnp.where(closed, 0.0, beta).astype(column.dtype))
    column = jnp.where(space.closed, 0.0, column)  # nothing leaves a space that is closed
    Q = tree.put(space.Q, j + 1, tree.scale(inverse, v))
    BQ = None if space.BQ is None else tree.put(space.BQ, j, Bq)
    return Space(space.length, Q, space.H.at[:, j].set(column), BQ, j + 1, closed)


def grow(space: Space, product: Product, n: int) -> Space:
    """n Arnoldi steps."""
    return lax.fori_loop(0, n, lambda _, space: extend(space, product), space)


def ritz(space: Space) -> tuple[Bool[Array, ""], Float[Array, " m"], Float[Array, "m m"]]:
    """Whether A is symmetric (gradient descent), and then its Ritz values, rising, and vectors.

    A single number is no evidence of symmetry.
    """
    m = space.H.shape[1]
    built = jnp.arange(m, dtype=jnp.int32) < space.rank
    square = lax.stop_gradient(jnp.where(built[:, None], space.H[:m], 0.0))
    close = jnp.linalg.norm(square - square.T) <= 0.01 * jnp.linalg.norm(square)
    return close & (space.rank > 1), *jnp.linalg.eigh((square + square.T) / 2)


class Swing(NamedTuple):
    """A_t = A + sign_t D and B_t = B + sign_t E, in coordinates of a Krylov space."""

    y: Float[Array, " m+1"]
    """The direction in which the loop swings."""
    D: Float[Array, "m+1 m+1"]
    Ey: Hyper
    sign: Float[Array, ""]
    """The sign of the last step of the piece; that of the node is 1."""


def no_swing(space: Space, lam: Hyper) -> Swing:
    y = jnp.zeros_like(space.H[:, 0])
    zero = optax.tree.zeros_like(lam)
    return Swing(y, jnp.zeros((y.size, y.size), y.dtype), zero, jnp.ones_like(y[0]))


class Powers(NamedTuple):
    """What C_0, ..., C_R are summed up to."""

    total: Float[Array, " m+1"]
    """The sum of C_i over i < R."""
    swung: Float[Array, " m+1"]
    """The sum of sign_i C_i."""
    end: Float[Array, " m+1"]
    """C_R."""
    held: Float[Array, ""]
    """How much of the total was taken away by holding back modes that grow,"""
    doubt: Float[Array, ""]
    """and how much of C_R, relative to it."""
    clipped: Bool[Array, ""]
    """Whether the cotangent as a whole had to be held back."""
    each: Any
    """C_0, ..., C_R, and C_R after that, [longest + 1, m + 1]; None where they are not wanted."""


def powers(space: Space, R: Int[Array, ""], longest: int, swing: Swing, keep: bool) -> Powers:
    """C_{i+1} = ([H 0] + sign_i D) C_i, summed up over R steps.

    The first `rank` powers, and all in a closed space, are exact; the others may exceed the
    largest of those by the factor GROWTH and are held back beyond it. Where some are not exact,
    `_tame` acts on all of them.
    """
    edge = jnp.zeros_like(space.H[:, :1])
    raw = jnp.concatenate([space.H, edge], axis=1)
    tamed = jnp.where((space.rank < R) & ~space.closed, _tame(space), space.H)
    most = jnp.asarray([GROWTH, jnp.inf], space.H.dtype)
    step = jax.vmap(lambda G, most, walk: _step(space, swing.D, G, most, walk))
    both = jnp.stack([jnp.concatenate([tamed, edge], axis=1), raw])

    def body(walk: _Walk, _):
        after = optax.tree.where(walk.i[0] < R, step(both, most, walk), walk)
        return after, walk.c[0] if keep else None

    last, each = lax.scan(body, _Walk.first(space, swing.sign), None, length=longest)
    (total, swung), end = space.length * last.sums[0], space.length * last.c[0]
    if each is not None:
        each = space.length * jnp.concatenate([each, last.c[:1]])
    held = space.length * tree.norm(last.sums[0, 0] - last.sums[1, 0])
    doubt = tree.norm(last.c[0] - last.c[1]) / tree.positive(tree.norm(last.c[0]))
    return Powers(total, swung, end, held, doubt, last.clipped[0], each)


class _Walk(NamedTuple):
    """Where the powers stand; twice, with modes held back and without."""

    c: Float[Array, "2 m+1"]
    sums: Float[Array, "2 2 m+1"]
    known: Float[Array, "2"]
    """The largest size among those known exactly."""
    i: Int[Array, "2"]
    sign: Float[Array, "2"]
    clipped: Bool[Array, "2"]

    @classmethod
    def first(cls, space: Space, sign: Float[Array, ""]) -> "_Walk":
        c = jnp.zeros_like(space.H[:, 0]).at[0].set(1.0)
        one = cls(
            c,
            jnp.zeros((2, c.size), c.dtype),
            jnp.ones_like(c[0]),
            jnp.zeros((), jnp.int32),
            sign,
            jnp.asarray(False),
        )
        return jax.tree.map(lambda a: jnp.stack([a, a]), one)


def _step(space: Space, D: Array, G: Array, most: Array, walk: _Walk) -> _Walk:
    sums = walk.sums + jnp.stack([walk.c, walk.sign * walk.c])
    c, i = G @ walk.c + walk.sign * (D @ walk.c), walk.i + 1
    size = tree.norm(c)
    exact = (i <= space.rank) | space.closed
    limit = lax.stop_gradient(jnp.where(exact, jnp.inf, most * walk.known))
    over = size > limit
    c = jnp.where(over, c * (jnp.where(over, limit, 1.0) / tree.positive(size)), c)
    known = jnp.where(exact, jnp.maximum(walk.known, size), walk.known)
    return _Walk(c, sums, known, i, -walk.sign, walk.clipped | over)


def _tame(space: Space) -> Float[Array, "m+1 m"]:
    """Lift Ritz values below -1 to -1, where A is symmetric (gradient descent).

    A mode with a multiplier below -1 would throw the iterates themselves out. Where they stay,
    at the edge of stability, the curvature gives way from step to step and the mode neither
    grows nor shrinks over a piece, which a frozen power cannot know.
    """
    symmetric, values, vectors = ritz(space)
    excess = jnp.where(symmetric, jnp.minimum(values + 1, 0.0), 0.0)
    lift = -(vectors * excess[None]) @ vectors.T
    return space.H.at[: space.H.shape[1]].add(lift)
