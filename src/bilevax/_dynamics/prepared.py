"""What depends on lam and S alone, taken out of the inner loop."""

import dataclasses
from collections.abc import Callable

import jax

from .._errors import check
from .._types import Context, Hyper, Params, Product, State, Time
from .base import AbstractDynamics, Equilibrium


class Prepared(AbstractDynamics):
    """An inner algorithm whose hyperparameters are prepare(lam, S), computed once.

    What depends on lam and S alone is taken out of the inner loop, such as the features of the
    data under a learned representation. So is its derivative: a rule gathers the cotangent of mu,
    and one pullback takes it to lam. The numbers are those of an inner problem that prepares
    again in every step.

    **Arguments:**

    - `prepare`: (lam, S) -> mu, any pytree of floating arrays.
    - `xi`: the inner algorithm in terms of mu: its g, init and opt see mu as their lam.

    !!! example

        >>> import bilevax as bx, jax.numpy as jnp, optax
        >>> g = lambda w, mu, S: jnp.sum((w - mu) ** 2) / 2
        >>> xi = bx.Descent(g, bx.constant(jnp.zeros(2)), optax.sgd(0.5))
        >>> xi = bx.Prepared(lambda lam, S: S @ lam, xi)  # S @ lam is not repeated in a step
        >>> bx.solve(xi, jnp.ones(3), jnp.ones((2, 3)), T=2)
        Array([2.25, 2.25], dtype=float32)
    """

    prepare: Callable[[Hyper, Context], Hyper]
    xi: AbstractDynamics

    def __check_init__(self):
        check.function(self.prepare, "prepare", "(lam, S) -> mu")
        how = "an inner algorithm, as in bx.Descent(g, init, opt)"
        check.instance(self.xi, AbstractDynamics, "xi", how)

    def mu(self, lam: Hyper, S: Context) -> Hyper:
        return self.xi.mu(self._prepared(lam, S), S)

    def loop(self) -> AbstractDynamics:
        return self.xi.loop()

    def start(self, lam: Hyper, S: Context) -> State:
        return self.xi.start(self._prepared(lam, S), S)

    def advance(self, s: State, lam: Hyper, S: Context, t: Time) -> State:
        return self.xi.advance(s, self._prepared(lam, S), S, t)

    def read(self, s: State) -> Params:
        return self.xi.read(s)

    def settle(self, s: State, lam: Hyper, S: Context, t: Time) -> State:
        return self.xi.settle(s, self._prepared(lam, S), S, t)

    def advance_vjp(self, s: State, lam: Hyper, S: Context, t: Time) -> Product:
        return self._pulled(lam, S, lambda mu: self.xi.advance_vjp(s, mu, S, t))

    def settle_vjp(self, s: State, lam: Hyper, S: Context, t: Time) -> Product:
        return self._pulled(lam, S, lambda mu: self.xi.settle_vjp(s, mu, S, t))

    def equilibrium(self, s: State, lam: Hyper, S: Context, t: Time) -> Equilibrium:
        x, residual, read, tags, _ = self.xi.equilibrium(s, self._prepared(lam, S), S, t)
        return Equilibrium(x, lambda x, lam: residual(x, self._prepared(lam, S)), read, tags)

    def at(self, w: Params) -> "Prepared":
        return dataclasses.replace(self, xi=self.xi.at(w))

    def _prepared(self, lam: Hyper, S: Context) -> Hyper:
        return check.floating(self.prepare(lam, S), "prepare(lam, S)")

    def _pulled(self, lam: Hyper, S: Context, linearise: Callable[[Hyper], Product]) -> Product:
        """From mu back to lam."""
        mu, pull_mu = jax.vjp(lambda lam: self._prepared(lam, S), lam)
        product = linearise(mu)

        def pull(alpha):
            alpha, mu_bar = product(alpha)
            return alpha, pull_mu(mu_bar)[0]

        return pull
