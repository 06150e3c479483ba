"""The inner loop, and the linearisation of one of its steps."""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Int, PyTree

from . import _tree as tree
from ._dynamics import AbstractDynamics
from ._types import Context, Hyper, Params, Policy, State, Time


def _loop(
    step: Callable[[State, Time], State], s: State, t: Time, n: int, keep: bool = False
) -> tuple[State, State | None]:
    """n steps of Eq. 4 from s_t; the only forward loop of the library.

    The step number travels in the carry: a table of step numbers would make memory
    grow with the number of steps.
    """

    def body(carry, _):
        s, t = carry
        return (step(s, t), t + 1), (s if keep else None)

    (s, _), kept = lax.scan(body, (s, jnp.asarray(t, jnp.int32)), None, length=n)
    return s, kept


def unroll(xi: AbstractDynamics, lam: Hyper, S: Context, s: State, t: Time, n: int):
    """s_{t+n} from s_t, holding one state."""
    return _loop(lambda s, t: xi.advance(s, lam, S, t), s, t, n)[0]


def record(xi: AbstractDynamics, lam: Hyper, S: Context, s: State, t: Time, n: int):
    """s_{t+n} from s_t, and s_t, ..., s_{t+n-1} stacked: n states."""
    return _loop(lambda s, t: xi.advance(s, lam, S, t), s, t, n, keep=True)


def capture(
    xi: AbstractDynamics, lam: Hyper, S: Context, s: State, t: Time, n: int, times: Int[Array, " k"]
) -> tuple[State, Callable[[Time], State], Float[Array, " n"]]:
    """s_{t+n} from s_t, a function time -> s_time for the k given times, and |s_{j+1} - s_j|.

    The times are sorted, may be traced, and may repeat. A slot is overwritten in every
    step until its time has come, so no step asks a question: k states, whatever n is.
    """

    def body(carry, _):
        s, t, slots = carry
        i = jnp.searchsorted(times, t)  # past the last time: out of range, dropped
        slots = jax.tree.map(lambda b, a: b.at[i].set(a, mode="drop"), slots, s)
        new = xi.advance(s, lam, S, t)
        return (new, t + 1, slots), tree.norm(tree.sub(tree.inexact(new), tree.inexact(s)))

    slots = jax.tree.map(lambda a: jnp.broadcast_to(a, (times.shape[0], *a.shape)), s)
    begin = (s, jnp.asarray(t, jnp.int32), slots)
    (s, _, slots), moves = lax.scan(body, begin, None, length=n)
    at = lambda time: jax.tree.map(lambda b: b[jnp.searchsorted(times, time)], slots)
    return s, at, moves


def unroll_vjp(
    xi: AbstractDynamics, lam: Hyper, S: Context, s: State, t: Time, n: int, policy: Policy
) -> tuple[State, Callable[[PyTree], tuple[PyTree, Hyper]]]:
    """s_{t+n} from s_t, and alpha_{t+n} -> (alpha_t, what these n steps add to h).

    JAX's own differentiation of the loop: a step keeps its iterate, and what `policy` says.
    """
    x, rest = eqx.partition(s, eqx.is_inexact_array)
    step = lambda s, lam, t: xi.advance(s, lam, S, t)
    step = jax.checkpoint(step, policy=policy, prevent_cse=False)

    def steps(x, lam):
        s, _ = _loop(lambda s, t: step(s, lam, t), eqx.combine(x, rest), t, n)
        return tree.inexact(s), s

    _, pull, s = jax.vjp(steps, x, lam, has_aux=True)
    return s, pull


def step_vjp(
    xi: AbstractDynamics, lam: Hyper, S: Context, s: State, t: Time
) -> Callable[[PyTree], tuple[PyTree, Hyper]]:
    """alpha -> (A_{t+1} alpha, B_{t+1} alpha), linearised at s_t.

    Only the differentiable part of the state has a cotangent: an integer count or a
    key has none.
    """
    return _vjp(lambda s, lam: xi.advance(s, lam, S, t), s, lam)


def settle_vjp(
    xi: AbstractDynamics, lam: Hyper, S: Context, s: State, t: Time
) -> Callable[[PyTree], tuple[PyTree, Hyper]]:
    """alpha -> (A_infinity alpha, B_infinity alpha) of Prop. 3.6, linearised at s."""
    return _vjp(lambda s, lam: xi.settle(s, lam, S, t), s, lam)


def _vjp(step: Callable[[State, Hyper], State], s: State, lam: Hyper):
    x, rest = eqx.partition(s, eqx.is_inexact_array)
    smooth = lambda x, lam: tree.inexact(step(eqx.combine(x, rest), lam))
    return jax.vjp(smooth, x, lam)[1]


def read_vjp(xi: AbstractDynamics, s: State) -> tuple[Params, Callable]:
    """w and the pullback of `read`: alpha in w to alpha_T in the state."""
    x, rest = eqx.partition(s, eqx.is_inexact_array)
    w, pull = jax.vjp(lambda x: xi.read(eqx.combine(x, rest)), x)
    return w, lambda alpha: pull(alpha)[0]
