"""Any iterative algorithm, given by its functions."""

import dataclasses
from collections.abc import Callable

import equinox as eqx

from .._errors import check, descent
from .._types import Context, Hyper, Params, State, Time
from .base import AbstractDynamics, constant


def everything(s: State) -> Params:
    """The default of `Dynamics.params`: the whole state is w."""
    return s


class Dynamics(AbstractDynamics):
    """Any iterative algorithm, given by its functions (Xi of Eq. 4).

    **Arguments:**

    - `init`: (lam, S) -> s_0, a pytree of arrays.
    - `step`: (s, lam, S, t) -> the next state, with t = 0, ..., T-1.
    - `params`: s -> w, the part of the state that f reads. Default: all of it.

    !!! example

        >>> import bilevax as bx, jax.numpy as jnp
        >>> step = lambda s, lam, S, t: s - 0.5 * (s - lam)
        >>> xi = bx.Dynamics(lambda lam, S: jnp.zeros(2), step)
        >>> bx.solve(xi, jnp.ones(2), T=2)
        Array([0.75, 0.75], dtype=float32)
    """

    init: Callable[[Hyper, Context], State]
    step: Callable[[State, Hyper, Context, Time], State]
    params: Callable[[State], Params] = eqx.field(default=everything)

    def __check_init__(self):
        check.function(self.init, "init", "(lam, S) -> state")
        check.function(self.step, "step", "(state, lam, S, t) -> state")
        check.function(self.params, "params", "state -> w")

    def start(self, lam: Hyper, S: Context) -> State:
        s = check.arrays(self.init(lam, S))
        check.floating(self.params(s), "w")
        return s

    def advance(self, s: State, lam: Hyper, S: Context, t: Time) -> State:
        new = check.arrays(self.step(s, lam, S, t))
        check.same_state(s, new)
        return new

    def read(self, s: State) -> Params:
        return self.params(s)

    def at(self, w: Params) -> "Dynamics":
        if self.params is not everything:
            descent.cannot_start_at(self)
        return dataclasses.replace(self, init=constant(w))
