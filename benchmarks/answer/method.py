"""What a method is: a first state, and a step of the outer iteration that can be compiled."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from .problem import Problem


class Method(NamedTuple):
    """`step` takes the step size of Adam on lam, so that all step sizes share one program."""

    start: Callable[[Problem], Any]
    """The first state; it has a `lam`."""
    step: Callable[[Problem, Any, jax.Array], Any]


class State(NamedTuple):
    """Of a single-loop method: everything is warm."""

    lam: jax.Array
    adam: Any
    w: jax.Array
    v: jax.Array
    """The solution of the linear system, or a second w."""
    t: jax.Array


def from_zero(problem: Problem) -> State:
    return _first(problem, jnp.zeros_like(problem.w))


def from_w(problem: Problem) -> State:
    """For methods whose second variable is another w."""
    return _first(problem, problem.w)


def _first(problem: Problem, v: jax.Array) -> State:
    adam = optax.adam(1.0).init(problem.lam)
    return State(problem.lam, adam, problem.w, v, jnp.zeros((), jnp.int32))


def moved(state: State, rate: jax.Array, h: jax.Array, w: jax.Array, v: jax.Array) -> State:
    """The next state: a step of Adam along h."""
    update, adam = optax.adam(rate).update(h, state.adam)
    return State(state.lam + update, adam, w, v, state.t + 1)
