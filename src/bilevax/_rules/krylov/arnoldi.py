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
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int, PyTree

from ... import _tree as tree
from ..._types import Hyper

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
    """<Q_i, A Q_j>: upper Hessenberg."""
    BQ: Hyper | None
    """B Q_j for j < m, stacked; None where only A is wanted."""
    rank: Int[Array, ""]
    """How many products have been taken."""
    closed: Bool[Array, ""]
    """The space is invariant: everything computed in it is exact."""


Product = Callable[[PyTree], tuple[PyTree, Hyper]]


def begin(a: PyTree, lam: Hyper, rank: int, keep_B: bool) -> Space:
    length = tree.norm(a)
    unit = tree.scale(1 / tree.positive(length), a)
    Q = tree.put(tree.stack_of_zeros(rank + 1, a), 0, unit)
    H = jnp.zeros((rank + 1, rank), length.dtype)
    BQ = tree.stack_of_zeros(rank, lam) if keep_B else None
    return Space(length, Q, H, BQ, jnp.zeros((), jnp.int32), length == 0)


def extend(space: Space, product: Product) -> Space:
    """One more Arnoldi step: one product gives A Q_j and B Q_j together."""
    v, Bq = product(last(space))
    return absorb(space, v, Bq, jnp.asarray(True))


def last(space: Space) -> PyTree:
    """Q_j, on which no product has been taken."""
    return jax.tree.map(lambda q: q[space.rank], space.Q)


def absorb(space: Space, v: PyTree, Bq: Hyper, wanted: Bool[Array, ""]) -> Space:
    """The space with v = A Q_j and B Q_j, if it is wanted; written in place, without a copy."""
    j = space.rank
    only = lambda x: jax.tree.map(lambda a: jnp.where(wanted, a, jnp.zeros_like(a)), x)
    before = tree.norm(v)
    column = jnp.zeros_like(space.H[:, 0])
    for _ in range(2):  # twice is enough, in float32 too
        c = tree.coordinates(space.Q, v)
        v = tree.sub(v, tree.combine(c, space.Q))
        column = column + c
    beta = tree.norm(v)
    closed = space.closed | (wanted & (beta <= 10 * jnp.finfo(beta.dtype).eps * before))
    inverse = jnp.where(closed | ~wanted, 0.0, 1 / jnp.where(beta > 0, beta, 1.0))
    column = column.at[j + 1].set(jnp.where(closed, 0.0, beta))
    column = jnp.where(space.closed, 0.0, column)  # nothing leaves a space that is closed
    Q = tree.put(space.Q, j + 1, tree.scale(inverse, v))
    BQ = None if space.BQ is None else tree.put(space.BQ, j, only(Bq))
    H = space.H.at[:, j].set(only(column))
    return Space(space.length, Q, H, BQ, j + wanted.astype(j.dtype), closed)


def grow(space: Space, product: Product, n: int) -> Space:
    """n Arnoldi steps."""
    return lax.fori_loop(0, n, lambda _, space: extend(space, product), space)


def ritz(space: Space) -> tuple[Bool[Array, ""], Float[Array, " m"], Float[Array, "m m"]]:
    """Whether A is symmetric (gradient descent), and then its Ritz values, rising, and vectors."""
    m = space.H.shape[1]
    built = jnp.arange(m, dtype=jnp.int32) < space.rank
    square = jnp.where(built[:, None], space.H[:m], 0.0)
    symmetric = jnp.linalg.norm(square - square.T) <= 0.01 * jnp.linalg.norm(square)
    return symmetric, *jnp.linalg.eigh((square + square.T) / 2)


def powers(
    space: Space, R: Int[Array, ""], longest: int
) -> tuple[Float[Array, "longest+1 m+1"], Bool[Array, ""]]:
    """C_0, ..., C_R, held at C_R after that, and whether any of them had to be held back."""
    one = jnp.ones_like(space.length)
    step = _stepper(space, jnp.zeros_like(space.H, shape=2 * space.H.shape[:1]))

    def body(walk, i):
        return jax.tree.map(lambda a, b: jnp.where(i < R, a, b), step(walk), walk), walk.c

    last, C = lax.scan(body, _first(space, one), jnp.arange(longest, dtype=jnp.int32))
    C = jnp.concatenate([C, last.c[None]])
    return space.length * C, last.clipped


def power_sum(
    space: Space,
    R: Int[Array, ""],
    longest: int,
    D: Float[Array, "m+1 m+1"],
    sign: Float[Array, ""],
) -> tuple[Float[Array, "2 m+1"], Float[Array, " m+1"], Bool[Array, ""]]:
    """The sums of C_i and of sign_i C_i over i < R, C_R, and whether any was held back.

    H is that of the middle of a swing, H + sign_i D that of step i, with alternating signs.
    """
    step = _stepper(space, D)

    def body(i, carry):
        walk, total = carry
        inside = jnp.asarray(i, jnp.int32) < R
        both = jnp.stack([walk.c, walk.sign * walk.c])
        total = total + jnp.where(inside, both, 0.0)
        return jax.tree.map(lambda a, b: jnp.where(inside, a, b), step(walk), walk), total

    first = _first(space, sign)
    total = jnp.zeros((2, first.c.size), first.c.dtype)
    last, total = lax.fori_loop(0, longest, body, (first, total))
    return space.length * total, space.length * last.c, last.clipped


class _Walk(NamedTuple):
    """Where the powers stand: C_i, the largest size among those known exactly, i, sign_i."""

    c: Float[Array, " m+1"]
    known: Float[Array, ""]
    i: Int[Array, ""]
    sign: Float[Array, ""]
    clipped: Bool[Array, ""]


def _first(space: Space, sign: Float[Array, ""]) -> _Walk:
    c = jnp.zeros_like(space.H[:, 0]).at[0].set(1.0)
    return _Walk(c, jnp.ones_like(c[0]), jnp.zeros((), jnp.int32), sign, jnp.asarray(False))


def _stepper(space: Space, D: Float[Array, "m+1 m+1"]) -> Callable[[_Walk], _Walk]:
    """C_{i+1} = ([H 0] + sign_i D) C_i, with D = 0 unless the loop swings.

    The first `rank` powers, and all in a closed space, are exact; the others may exceed the
    largest of those by the factor GROWTH and are held back beyond it.
    """
    G = jnp.concatenate([_tame(space), jnp.zeros_like(space.H[:, :1])], axis=1)

    def step(walk: _Walk) -> _Walk:
        c, i = G @ walk.c + walk.sign * (D @ walk.c), walk.i + 1
        size = jnp.linalg.norm(c)
        exact = (i <= space.rank) | space.closed
        limit = jnp.where(exact, jnp.inf, GROWTH * walk.known)
        c = c * jnp.where(size > limit, limit / jnp.where(size > 0, size, 1.0), 1.0)
        known = jnp.where(exact, jnp.maximum(walk.known, size), walk.known)
        return _Walk(c, known, i, -walk.sign, walk.clipped | (size > limit))

    return step


def _tame(space: Space) -> Float[Array, "m+1 m"]:
    """Lift Ritz values below -1 to -1, where A is symmetric (gradient descent).

    A mode with a multiplier below -1 would throw the iterates themselves out. Where they stay,
    at the edge of stability, the curvature gives way from step to step and the mode neither
    grows nor shrinks over a piece, which a frozen power cannot know.
    """
    symmetric, values, vectors = ritz(space)
    excess = jnp.where(symmetric, jnp.minimum(values + 1, 0.0), 0.0)
    lift = lax.stop_gradient(-(vectors * excess[None]) @ vectors.T)
    return space.H.at[: space.H.shape[1]].add(lift)
