"""What is compiled: the start, a segment there (Eq. 4), f, and a segment back (Eq. 6)."""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax import lax
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P
from jaxtyping import Array, Bool, Int

from .. import _tree as tree
from .._compile import weak_jit
from .._hypergradient import gradient, loss_of
from .._loop import (
    Back,
    along,
    forward,
    in_segments,
    read_vjp,
    start_vjp,
    unroll,
)
from .._outer.devices import constrained
from .._rules.base import AbstractRule
from .._types import Hyper, Params, State
from .._visible import require_visible
from .fed import Fed, Seen


class Shardings(NamedTuple):
    """On a mesh, the shardings of the leaves of s, alpha and mu."""

    s: tuple[Any, ...] | None = None
    alpha: tuple[Any, ...] | None = None
    mu: tuple[Any, ...] | None = None


class Turn(NamedTuple):
    """What f says at the end of the way there."""

    value: Any
    w: Params
    direct: Hyper
    """grad_lam f."""
    bad: Bool[Array, " 2"]
    """w, f not finite."""
    moved: Bool[Array, ""]
    """Whether f depends on w."""


@weak_jit
def begin(f, xi: Fed, lam: Hyper, X: Seen, rule: AbstractRule, has_aux: bool, shardings: Shardings):
    """mu and s_0; while it is compiled, leaves of lam that nobody would see are found."""
    loss = loss_of(f, has_aux)
    require_visible(rule, xi, lam, X, lambda w, lam, X: loss(w, lam, X.S))
    mu = xi.mu(lam, X)
    return mu, constrained(xi.loop().start(mu, X), shardings.s)


@weak_jit
def find_forms(xi: Fed, lam: Hyper, X: Seen) -> tuple[Hyper, State]:
    """mu and s_1, in one program from the start: they lie where the partitioner has them."""
    mu, loop = xi.mu(lam, X), xi.loop()
    return mu, loop.advance(loop.start(mu, X), mu, X, X.t)


@weak_jit
def ahead(
    xi: Fed, mu: Hyper, X: Seen, s: State, n: int, shardings: Shardings
) -> tuple[State, Bool[Array, ""]]:
    """s_{t+n} from s_t, and whether its w is finite."""
    s = unroll(xi.loop(), mu, X, s, X.t, n)
    return constrained(s, shardings.s), tree.all_finite(tree.inexact(xi.read(s)))


@weak_jit
def bad_step(xi: Fed, mu: Hyper, X: Seen, s: State, n: int) -> Int[Array, ""]:
    """The number of the first step of a segment whose w is not finite."""
    loop = xi.loop()
    bad = lambda before, after: ~tree.all_finite(tree.inexact(loop.read(after)))
    _, flags = forward(lambda s, t: loop.advance(s, mu, X, t), s, X.t, n, keep=bad)
    return X.t + jnp.argmax(flags).astype(jnp.int32)


@weak_jit
def turn(
    f,
    xi: Fed,
    lam: Hyper,
    X: Seen,
    mu: Hyper,
    s: State,
    T: Array,
    has_aux: bool,
    shardings: Shardings,
) -> tuple[Turn, Back]:
    """f at w_T, and where the way back begins: alpha_T, and an h of zero."""
    w, pull = read_vjp(xi, s)
    (value, aux), (alpha, direct) = gradient(f, w, lam, X.S, has_aux)
    bad = jnp.stack([~tree.all_finite(x) for x in (tree.inexact(w), value)])
    at = _placed(Back(pull(alpha), optax.tree.zeros_like(mu), T), shardings)
    return Turn((value, aux) if has_aux else value, w, direct, bad, tree.norm(alpha) > 0), at


@weak_jit
def make_room(s: State, n: int, shardings: Shardings) -> State:
    """For n states, stacked."""
    stacked = jax.tree.map(lambda a: jnp.broadcast_to(a, (n, *a.shape)), s)
    return _roomy(stacked, shardings)


@functools.partial(weak_jit, gives=True)
def again(
    xi: Fed, mu: Hyper, X: Seen, s: State, n: int, shardings: Shardings, room: State
) -> State:
    """The n states of a segment, which begins with s, in the room of those of another one.

    Memory that is new costs more than a step that fills it.
    """
    loop = xi.loop()
    put = lambda room, i, s: jax.tree.map(
        lambda a, b: lax.dynamic_update_index_in_dim(a, b, i, 0), room, s
    )

    def step(carry, t):
        s = loop.advance(carry[0], mu, X, t)
        return s, put(carry[1], t + 1 - X.t, s)

    return _roomy(forward(step, (s, put(room, 0, s)), X.t, n - 1)[0][1], shardings)


@weak_jit
def behind(
    xi: Fed, mu: Hyper, X: Seen, room: State, at: Back, n: int, shardings: Shardings
) -> Back:
    """From after a segment, whose n states are in `room`, to before it (Eq. 6)."""
    history = jax.tree.map(lambda a: a[:n], room)
    return _placed(along(xi.loop(), mu, X, history, n, at), shardings)


@weak_jit
def behind_in_segments(
    xi: Fed,
    mu: Hyper,
    X: Seen,
    s: State,
    at: Back,
    n: int,
    inner: tuple[int, ...],
    shardings: Shardings,
) -> Back:
    """The same of a segment which begins with s, and has segments of its own."""
    way = in_segments(xi.loop(), mu, X, s, X.t, n, inner)[1]
    return _placed(way(at), shardings)


@weak_jit
def finish(
    xi: Fed, lam: Hyper, X: Seen, at: Back, direct: Hyper, whole: bool
) -> tuple[Hyper, Bool[Array, " 2"]]:
    """h = grad_lam f + h_0 + B_0 alpha_0, and whether it is not finite, is zero.

    Without B_0 if not the whole way was gone.
    """
    mu, pull = jax.vjp(lambda lam: xi.mu(lam, X), lam)
    indirect = at.h
    if whole:
        indirect = optax.tree.add(indirect, start_vjp(xi.loop(), mu, X, at.alpha))
    h = optax.tree.add(direct, pull(indirect)[0])
    return h, jnp.stack([~tree.all_finite(h), tree.norm(h) == 0])


def _placed(at: Back, shardings: Shardings) -> Back:
    alpha, h = constrained(at.alpha, shardings.alpha), constrained(at.h, shardings.mu)
    return at._replace(alpha=alpha, h=h)


def _roomy(stacked: State, shardings: Shardings) -> State:
    """Every state of a stack where one state lies."""
    stack = lambda place: NamedSharding(place.mesh, P(None, *place.spec))
    return constrained(stacked, shardings.s and tuple(map(stack, shardings.s)))
