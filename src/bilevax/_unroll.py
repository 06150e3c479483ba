"""The inner loop, and the linearisation of one of its steps."""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import PyTree

from . import _tree as tree
from ._dynamics import AbstractDynamics
from ._types import Context, Hyper, Params, State, Time


def _loop(
    xi: AbstractDynamics, lam: Hyper, S: Context, s: State, t: Time, n: int, keep: bool
) -> tuple[State, State | None]:
    """n steps of Eq. 4 from s_t; the only forward loop of the library.

    The step number travels in the carry: a table of step numbers would make memory
    grow with the number of steps.
    """

    def body(carry, _):
        s, t = carry
        return (xi.advance(s, lam, S, t), t + 1), (s if keep else None)

    (s, _), kept = lax.scan(body, (s, jnp.asarray(t, jnp.int32)), None, length=n)
    return s, kept


def unroll(xi: AbstractDynamics, lam: Hyper, S: Context, s: State, t: Time, n: int):
    """s_{t+n} from s_t, holding one state."""
    return _loop(xi, lam, S, s, t, n, keep=False)[0]


def record(xi: AbstractDynamics, lam: Hyper, S: Context, s: State, t: Time, n: int):
    """s_{t+n} from s_t, and s_t, ..., s_{t+n-1} stacked: n states."""
    return _loop(xi, lam, S, s, t, n, keep=True)


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
