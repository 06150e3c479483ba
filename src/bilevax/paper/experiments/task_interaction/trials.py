"""Many problems of one shape as one problem: independent trials in one program.

lam, S and the state carry the trials along their first axis. A hypergradient of the sum over
trials is then the hypergradient of each, and an outer optimizer that acts coordinate by
coordinate, as Adam does, runs each as if it were alone.
"""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp

from ...._dynamics import AbstractDynamics, Equilibrium
from ...._rules.base import AbstractRule, Channel, apply
from ...._types import Context, Hyper, Objective, Params, Pull, State, Time


class Trials(AbstractDynamics):
    """xi, for every trial."""

    xi: AbstractDynamics

    def start(self, lam: Hyper, S: Context) -> State:
        return jax.vmap(self.xi.start)(lam, S)

    def advance(self, s: State, lam: Hyper, S: Context, t: Time) -> State:
        return jax.vmap(self.xi.advance, (0, 0, 0, None))(s, lam, S, t)

    def read(self, s: State) -> Params:
        return jax.vmap(self.xi.read)(s)

    def settle(self, s: State, lam: Hyper, S: Context, t: Time) -> State:
        return jax.vmap(self.xi.settle, (0, 0, 0, None))(s, lam, S, t)

    def equilibrium(self, s: State, lam: Hyper, S: Context, t: Time) -> Equilibrium:
        at = lambda s, lam, S: self.xi.equilibrium(s, lam, S, t)
        zero = lambda s, x, lam, S: at(s, lam, S).residual(x, lam)
        x = jax.vmap(lambda s, lam, S: at(s, lam, S).x)(s, lam, S)
        w = lambda s, x, lam, S: at(s, lam, S).read(x)
        residual = lambda x, lam: jax.vmap(zero)(s, x, lam, S)
        return Equilibrium(x, residual, lambda x: jax.vmap(w)(s, x, lam, S), ())


class Each(AbstractRule):
    """A rule, applied to each trial by itself: what it adapts, it adapts to that trial."""

    rule: AbstractRule

    def vjp(self, xi: AbstractDynamics, lam: Hyper, S: Context, T: int) -> tuple[Params, Pull]:
        assert isinstance(xi, Trials), "Each goes with Trials"
        one = xi.xi

        def run(lam: Hyper, S: Context):
            w, pull = apply(self.rule.vjp, one, lam, S, T)
            return w, eqx.filter_closure_convert(pull, w)

        w, pulls = eqx.filter_vmap(run)(lam, S)

        def pull(alpha: Params):
            lam_bar, report = eqx.filter_vmap(lambda pull, alpha: pull(alpha))(pulls, alpha)
            return lam_bar, {name: jnp.mean(x) for name, x in report.items()}

        return w, pull

    def sees(self) -> Channel:
        return self.rule.sees()


def total(f: Objective) -> Callable:
    """The sum of f over trials."""
    return lambda w, lam, S: jnp.sum(jax.vmap(f)(w, lam, S))
