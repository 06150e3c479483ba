"""How wrong a Krylov hypergradient is: the residual of the spaces, the drift of the Jacobians.

An error e made in the cotangent at step i of a piece travels back like the cotangent itself.
If alpha_i goes on to contribute parts whose norms sum up to `older_i`, then e contributes about
|e| older_i / |alpha_i|: that ratio is the gain of step i. Two kinds of e are summed up:

- **subspace**: where the space of rank k ends, the coefficient |C_i[k]| of the last vector is
  what the next product would have acted on;
- **freezing**: at the two ends of a piece, A and B on the cotangent there, against what the
  frozen pair gave. In between the difference is taken to grow with the path length from the
  node, or, where steps are drawn (minibatches), to be as large everywhere. The effects of the two
  ends are added with sign, because a drift has opposite signs on the two sides of the node, plus
  a third of their sizes for what does not cancel. Those of different pieces are
  added like independent errors.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax import lax
from jaxtyping import Array, Float, Int

from ... import _tree as tree
from ..._types import Product, Time
from .arnoldi import Space

UNCERTAIN = 1 / 3


class Evidence(NamedTuple):
    """What is remembered of one piece, or, stacked, of all; index i counts from its end."""

    size: Float[Array, "... R"]
    """|alpha_i|."""
    after: Float[Array, "... R"]
    """|alpha_{i+1}|, after step i."""
    part: Float[Array, "... R"]
    """|B alpha_i|; zero outside the piece."""
    missing: Float[Array, "... R"]
    """|C_i[k]|, the weight of the last vector; zero outside the piece."""
    norm_A: Float[Array, "..."]
    norm_B: Float[Array, "..."]
    side: Float[Array, "... 2 R"]
    """How far step i lies from the node towards either end, as a part of the way."""
    drift_A: Float[Array, "... 2 2"]
    """Inner products of (A_end - A) v / |v| at the two ends."""
    drift_B: Float[Array, "... 2 2"]


def gather(
    space: Space,
    C: Float[Array, "T+1 m+1"],
    R: Int[Array, ""],
    side: Float[Array, "2 T"],
    product: Callable[[Time], Product],
    first: Time,
    last: Time,
) -> Evidence:
    """The evidence of a piece of R steps; two products, with the Jacobians of its ends."""
    T = C.shape[0] - 1
    inside = jnp.arange(T, dtype=jnp.int32) < R
    sizes = jnp.linalg.norm(C, axis=1)
    gram = jax.vmap(tree.coordinates, (None, 0))(space.BQ, space.BQ).astype(C.dtype)
    parts = jnp.einsum("ri,ij,rj->r", C[:T, :-1], gram, C[:T, :-1])

    def drift(end):
        t, i = end
        size = jnp.where(sizes[i] > 0, sizes[i], 1.0)
        a, b = product(t)(tree.combine(C[i] / size, space.Q))
        a = optax.tree.sub(a, tree.combine(C[i + 1] / size, space.Q))
        return a, optax.tree.sub(b, tree.combine(C[i, :-1] / size, space.BQ))

    at = jnp.stack([last, first]), jnp.stack([jnp.zeros_like(R), jnp.maximum(R - 1, 0)])
    both = lax.map(drift, at)  # a loop: one step is compiled
    ends = tree.take(both, 0), tree.take(both, 1)
    table = lambda n: jnp.stack([jnp.stack([tree.dot(x[n], y[n]) for y in ends]) for x in ends])
    only = lambda x: jnp.where(inside, x, 0.0)
    evidence = Evidence(
        size=only(sizes[:T]),
        after=only(sizes[1:]),
        part=only(jnp.sqrt(jnp.maximum(parts, 0.0))),
        missing=only(jnp.abs(jnp.take(C[:T], space.rank, axis=1))),
        norm_A=jnp.max(jnp.linalg.norm(space.H, axis=0)),
        norm_B=jnp.max(jax.vmap(tree.norm)(space.BQ)),
        side=side,
        drift_A=table(0),
        drift_B=table(1),
    )
    return jax.tree.map(lambda a: a.astype(C.dtype), evidence)


def no_evidence(pieces: int, T: int, dtype: Any) -> Evidence:
    """Room for the evidence of so many pieces."""
    long, short = jnp.zeros((pieces, T), dtype), jnp.zeros(pieces, dtype)
    side, gram = jnp.zeros((pieces, 2, T), dtype), jnp.zeros((pieces, 2, 2), dtype)
    return Evidence(long, long, long, long, short, short, side, gram, gram)


def estimate_error(
    pieces: Evidence, below: Float[Array, ""]
) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """(subspace, freezing), absolute, for stacked pieces, oldest first.

    `below` is the sum of the norms of what the exact first steps and B_0 contributed.
    """
    within = jnp.cumsum(pieces.part[..., ::-1], axis=-1)[..., ::-1] - pieces.part
    whole = jnp.sum(pieces.part, axis=-1)
    older = (below + jnp.cumsum(whole) - whole)[..., None] + within
    gain = older / jnp.where(pieces.after > 0, pieces.after, jnp.inf)
    reach_A = gain * pieces.norm_A[..., None]
    subspace = jnp.sum((reach_A + pieces.norm_B[..., None]) * pieces.missing)
    through = pieces.side * pieces.size[..., None, :]
    freezing = _drift(jnp.sum(through * gain[..., None, :], axis=-1), pieces.drift_A)
    freezing = freezing + _drift(jnp.sum(through, axis=-1), pieces.drift_B)
    return subspace, jnp.linalg.norm(freezing)


def widen(error: Float[Array, ""]) -> Float[Array, ""]:
    """From an error relative to the computed h to one relative to the true h.

    With e = |error| / |h|, the true norm may be as small as |h| (1 - e); to first order that
    makes e (1 + e). A frozen minibatch is the case: it adds up where many of them average out.
    Beyond e = 1/2 the norm of h says little about the true one, and half of e is added.
    """
    return error * (1 + jnp.minimum(error, 0.5))


def _drift(weight: Float[Array, "p 2"], gram: Float[Array, "p 2 2"]) -> Float[Array, " p"]:
    """|sum of both ends| + a third of (|one end| + |other end|), for each piece."""
    both = jnp.einsum("pi,pij,pj->p", weight, gram, weight)
    alone = weight * jnp.sqrt(jnp.maximum(jnp.einsum("pii->pi", gram), 0.0))
    return jnp.sqrt(jnp.maximum(both, 0.0)) + UNCERTAIN * jnp.sum(alone, axis=-1)


def side_weights(
    length: Float[Array, " T+1"],
    drawn: Float[Array, ""],
    first: Int[Array, ""],
    node: Int[Array, ""],
    last: Int[Array, ""],
) -> Float[Array, "2 T"]:
    """For i = 0, ..., T-1: the part of the path from the node to either end at step last - i.

    What each step draws for itself is as far from the node next to it as at the ends: the
    weights are at least `drawn`. Row 0 is the late end, row 1 the early one; zero outside
    the piece.
    """
    T = length.shape[0] - 1
    t = last - jnp.arange(T, dtype=jnp.int32)
    inside = t >= first
    way = jnp.abs(length[jnp.clip(t, 0)] - length[node])
    ends = jnp.abs(jnp.stack([length[last], length[first]]) - length[node])
    part = way[None] / jnp.where(ends > 0, ends, jnp.inf)[:, None]
    belongs = inside[None] & jnp.stack([t > node, t < node])
    return jnp.where(belongs, jnp.maximum(part, drawn.astype(part.dtype)), 0.0)
