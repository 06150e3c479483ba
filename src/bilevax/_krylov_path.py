"""The forward pass of `AdaptiveKrylov`: what it keeps, and how it cuts the horizon."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PyTree

from . import _tree as tree
from ._arnoldi import Product
from ._dynamics import AbstractDynamics
from ._reverse import start_vjp
from ._types import Context, Hyper, State
from ._unroll import capture, record, step_vjp

HEAD = 8
"""The most first steps that are taken exactly."""

VIOLENT = 1.4
"""A step is violent if it moves the state this much further than the next one."""


class Path(NamedTuple):
    """What the forward pass leaves behind."""

    end: State
    """s_T."""
    product: Callable[[Int[Array, ""]], Product]
    """t -> the vjp of step t, for the first steps and for every node and end of a piece."""
    pull_start: Callable[[PyTree], Hyper]
    """alpha -> B_0 alpha."""
    length: Float[Array, " T+1"]
    """How far the state has travelled before step t."""
    head: Int[Array, ""]
    """How many first steps are to be exact."""


def walk(xi: AbstractDynamics, lam: Hyper, S: Context, T: int, max_pieces: int) -> Path:
    """The inner loop, keeping the iterates that any number of pieces may ask for."""
    begun = min(HEAD + 1, T)
    s, first = record(xi, lam, S, xi.start(lam, S), 0, begun)
    moves = jax.vmap(tree.norm)(_differences(first, s))
    head = jnp.minimum(_violent_steps(moves), T)
    levels = [2**i for i in range(max_pieces.bit_length())]
    marks = [jnp.ravel(jnp.stack(cut(head, T, p, jnp.arange(p, dtype=jnp.int32)))) for p in levels]
    times = jnp.sort(jnp.maximum(jnp.concatenate(marks), begun))
    s, late, more = capture(xi, lam, S, s, begun, T - begun, times)

    def at(t):
        early = jax.tree.map(lambda a: a[jnp.clip(t, 0, begun - 1)], first)
        return jax.tree.map(lambda a, b: jnp.where(t < begun, a, b), early, late(t))

    product = lambda t: step_vjp(xi, lam, S, at(t), t)
    moves = jnp.concatenate([jnp.zeros_like(moves[:1]), moves, more])
    return Path(s, product, lambda a: start_vjp(xi, lam, S, a), jnp.cumsum(moves), head)


def cut(
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


def _differences(states: State, end: State) -> PyTree:
    """s_{t+1} - s_t for stacked states and the one behind them."""
    difference = lambda a, b: jnp.diff(jnp.concatenate([a, b[None]]), axis=0)
    return jax.tree.map(difference, tree.inexact(states), tree.inexact(end))


def _violent_steps(moves: Float[Array, " n"]) -> Int[Array, ""]:
    """The first steps up to one after the last violent one; 0 if none is violent."""
    violent = moves[:-1] > VIOLENT * moves[1:]
    upto = jnp.arange(moves.shape[0] - 1, dtype=jnp.int32) + 2
    return jnp.minimum(jnp.max(jnp.where(violent, upto, 0), initial=0), HEAD)
