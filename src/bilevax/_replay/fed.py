"""The inner algorithm with a batch for each step."""

from typing import NamedTuple

import jax
from jax import lax
from jaxtyping import PyTree

from .._dynamics import AbstractDynamics
from .._types import Context, Hyper, Params, Product, State, Time


class Seen(NamedTuple):
    """What the steps of a segment see, as the context of `Fed`."""

    S: Context = None
    t: Time = 0
    """The number of the segment's first step."""
    batches: PyTree = None
    """Of all its steps, stacked."""


class Fed(AbstractDynamics):
    """xi, whose start sees S, and whose step t sees the batch of t."""

    xi: AbstractDynamics

    def start(self, lam: Hyper, S: Seen) -> State:
        return self.xi.start(lam, S.S)

    def advance(self, s: State, lam: Hyper, S: Seen, t: Time) -> State:
        return self.xi.loop().advance(s, self.xi.mu(lam, S.S), _batch(S, t), t)

    def advance_vjp(self, s: State, lam: Hyper, S: Seen, t: Time) -> Product:
        """As xi says, of a loop: there mu is lam."""
        return self.xi.advance_vjp(s, lam, _batch(S, t), t)

    def read(self, s: State) -> Params:
        return self.xi.read(s)

    def mu(self, lam: Hyper, S: Seen) -> Hyper:
        return self.xi.mu(lam, S.S)

    def loop(self) -> "Fed":
        return Fed(self.xi.loop())


def _batch(S: Seen, t: Time) -> PyTree:
    of_t = lambda a: lax.dynamic_index_in_dim(a, t - S.t, keepdims=False)
    return jax.tree.map(of_t, S.batches)
