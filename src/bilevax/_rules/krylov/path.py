"""The forward pass of `AdaptiveKrylov`: what it keeps, and how it cuts the horizon."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import lax
from jaxtyping import Array, Bool, Float, Int, PyTree

from ... import _tree as tree
from ..._dynamics import AbstractDynamics
from ..._loop import capture, recorded, start_vjp
from ..._types import Context, Hyper, Product, State, Time
from .rule import layout

HEAD = 8
"""The most first steps that are taken exactly."""

JUMP = 5.0
"""Steps of a loop that drifts are nearly as long as their neighbours."""

SHARE = 1 / 12
"""A first step is violent if it makes this much of the path that is left. A piece takes about a
dozen products for the path it covers; an exact step should not cover less for its one."""


class Path(NamedTuple):
    """What the forward pass leaves behind."""

    end: State
    """s_T."""
    at: Callable[[Time], State]
    """t -> s_t, for the first steps and for every node and end of a piece."""
    product: Callable[[Time], Product]
    """t -> the vjp of the step that leaves s_t, for the same t."""
    pull_start: Callable[[PyTree], Hyper]
    """alpha -> B_0 alpha."""
    length: Float[Array, " T+1"]
    """How far the state has travelled before step t."""
    head: Int[Array, ""]
    """How many first steps are to be exact."""
    drawn: Float[Array, ""]
    """How much of a step depends on its number alone: about 1 with minibatches, 0 without."""
    jumps: Bool[Array, ""]
    """Whether steps differ so much from their neighbours that no few of them stand for all."""


def walk(xi: AbstractDynamics, lam: Hyper, S: Context, T: int, table: np.ndarray) -> Path:
    """The inner loop, keeping the first iterates and those that the table asks for."""
    begun = min(HEAD + 1, T)
    s, first = recorded(xi, lam, S, xi.start(lam, S), 0, begun)
    moves = jax.vmap(tree.norm)(_differences(first, s))
    times = jnp.asarray(np.unique(np.maximum(table, begun)), jnp.int32)
    s, late, more = capture(xi, lam, S, s, begun, T - begun, times)
    moves = jnp.concatenate([moves, more])

    def at(t):
        early = jax.tree.map(lambda a: a[jnp.clip(t, 0, begun - 1)], first)
        return jax.tree.map(lambda a, b: jnp.where(t < begun, a, b), early, late(t))

    product = lambda t: xi.advance_vjp(at(t), lam, S, t)
    length = jnp.cumsum(jnp.concatenate([jnp.zeros_like(moves[:1]), moves]))
    drawn = jnp.minimum(_redraw(xi, lam, S, T, at) / tree.positive(moves[-1]), 1.0)
    start = lambda a: start_vjp(xi, lam, S, a)
    head = _violent_steps(moves, begun)
    return Path(s, at, product, start, length, head, drawn, _jumps(moves, head))


def _redraw(xi: AbstractDynamics, lam: Hyper, S: Context, T: int, at: Callable) -> Array:
    """How far the last step moves if it has the number of another one, from the same state.

    Both are taken here, by the same arithmetic: s_T itself may differ by rounding.
    """
    t = jnp.asarray(T - 1, jnp.int32)
    step = lambda number: tree.inexact(xi.advance(at(t), lam, S, number))
    both = lax.map(step, jnp.stack([t, jnp.abs(t - 1)]))
    return tree.norm(optax.tree.sub(tree.take(both, 0), tree.take(both, 1)))


def pieces_table(T: int, max_pieces: int) -> np.ndarray:
    """First step, node and last step of each of 1, 2, 4, ... pieces, as `Krylov` lays them out.

    Row [i, j] is the j-th of 2^i pieces; rows without a piece have the last step -1.
    """
    levels = max_pieces.bit_length()
    table = np.tile(np.array([0, 0, -1], np.int32), (levels, 2 ** (levels - 1), 1))
    for i in range(levels):
        cuts, nodes = layout(0, T, 2**i)
        table[i, : len(nodes)] = np.stack([cuts[:-1], nodes, cuts[1:] - 1], axis=1)
    return table


def cut(
    piece: Int[Array, "3"], head: Int[Array, ""]
) -> tuple[Int[Array, ""], Int[Array, ""], Int[Array, ""], Int[Array, ""]]:
    """First step, node, last step and number of steps of a piece, without the exact steps.

    How many steps are exact is known after the forward pass only, so the cuts do not depend
    on it: exact steps shorten the first piece, or leave nothing of it.
    """
    first = jnp.maximum(piece[0], head)
    last = jnp.maximum(piece[2], first)
    return first, jnp.clip(piece[1], first, last), last, jnp.maximum(piece[2] + 1 - first, 0)


def _jumps(moves: Float[Array, " T"], head: Int[Array, ""]) -> Bool[Array, ""]:
    """A step after the exact ones that is JUMP times as long as one next to it, and not tiny."""
    long, short = jnp.maximum(moves[1:], moves[:-1]), jnp.minimum(moves[1:], moves[:-1])
    counts = jnp.arange(long.size, dtype=jnp.int32) >= head
    return jnp.any(counts & (long > JUMP * short) & (long > 1e-3 * jnp.max(moves, initial=0.0)))


def _differences(states: State, end: State) -> PyTree:
    """s_{t+1} - s_t for stacked states and the one after them."""
    difference = lambda a, b: jnp.diff(jnp.concatenate([a, b[None]]), axis=0)
    return jax.tree.map(difference, tree.inexact(states), tree.inexact(end))


def _violent_steps(moves: Float[Array, " T"], begun: int) -> Int[Array, ""]:
    """The violent steps from the first on, and one more; 0 if the first is not violent."""
    left = jnp.cumsum(moves[::-1])[::-1]
    violent = (moves > SHARE * left)[:begun]
    count = jnp.sum(jnp.cumprod(violent.astype(jnp.int32)), dtype=jnp.int32)
    return jnp.where(count > 0, jnp.minimum(count + 1, begun - 1), 0)
