"""Xi, the inner algorithm of Eq. 4, as a dynamical system on a state s that contains w.

    s_0 = start(lam, S),   s_{t+1} = advance(s_t, lam, S, t),   w = read(s)

Rules know the inner algorithm only through this interface, so every rule works for
every algorithm, with whatever the algorithm remembers between its steps.
"""

import abc
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import optax
from jaxtyping import PyTree

from .. import _tree as tree
from .._errors import descent
from .._types import Context, Hyper, Params, Product, State, Time


class Equilibrium(NamedTuple):
    """What an inner algorithm converges to: x with residual(x, lam) = 0, w = read(x).

    !!! example

        >>> import bilevax as bx, jax.numpy as jnp
        >>> xi = bx.Dynamics(lambda lam, S: jnp.zeros(()), lambda s, lam, S, t: (s + lam) / 2)
        >>> there = xi.equilibrium(jnp.asarray(3.0), jnp.asarray(3.0), None, 0)
        >>> print(there.residual(there.x, jnp.asarray(3.0)))  # s = 3 is the fixed point
        0.0
    """

    x: PyTree
    residual: Callable[[PyTree, Hyper], PyTree]
    read: Callable[[PyTree], Params]
    tags: Any
    """What lineax may assume of the Jacobian of the residual in x."""
    pull: Callable[[Hyper], Product] | None = None
    """lam -> the vjp of the residual in (x, lam), linearised there; None: by reverse mode."""

    def vjp(self, lam: Hyper) -> tuple[PyTree, Product]:
        """The residual, and its pullback."""
        if self.pull is None:
            return jax.vjp(self.residual, self.x, lam)
        return self.residual(self.x, lam), self.pull(lam)


class Stateful(NamedTuple):
    """A model with more than parameters: running statistics, moving averages, keys, counts.

    For such a model `init` of `Descent` returns a `Stateful`. f and g then get one in place of w,
    and g returns the pair (loss, new state).

    !!! example

        >>> import bilevax as bx, jax.numpy as jnp, optax
        >>> def g(model, lam, S):
        ...     w, seen = model
        ...     return jnp.sum((w - lam) ** 2) / 2, seen + 1
        >>> start = bx.Stateful(jnp.zeros(2), jnp.asarray(0))  # a state may hold integers
        >>> xi = bx.Descent(g, bx.constant(start), optax.sgd(0.5))
        >>> bx.solve(xi, jnp.ones(2), T=2)
        Stateful(w=Array([0.75, 0.75], dtype=float32), state=Array(2, dtype=int32))
    """

    w: PyTree
    """What the optimizer trains: a pytree of floating arrays."""
    state: PyTree
    """What g passes on from step to step: a pytree of arrays of any dtype."""


class AbstractDynamics(eqx.Module):
    """The interface between inner algorithms and rules.

    An algorithm of your own defines `start`, `advance` and `read`. The other methods have
    defaults that are right for any iteration; `at` is needed for warm starts only.

    !!! example

        >>> import bilevax as bx, jax.numpy as jnp, optax
        >>> g = lambda w, lam, S: jnp.sum((w - lam) ** 2) / 2
        >>> xi = bx.Descent(g, bx.constant(jnp.zeros(2)), optax.sgd(0.5))
        >>> s = xi.start(jnp.ones(2), None)
        >>> xi.read(xi.advance(s, jnp.ones(2), None, 0))
        Array([0.5, 0.5], dtype=float32)
    """

    @abc.abstractmethod
    def start(self, lam: Hyper, S: Context) -> State:
        """s_0 = Xi_0(lam)."""

    @abc.abstractmethod
    def advance(self, s: State, lam: Hyper, S: Context, t: Time) -> State:
        """s_{t+1} = Xi_{t+1}(s_t, lam), for t = 0, ..., T-1 (Eq. 4)."""

    @abc.abstractmethod
    def read(self, s: State) -> Params:
        """The parameters w inside the state, or a `Stateful` of them and more."""

    def settle(self, s: State, lam: Hyper, S: Context, t: Time) -> State:
        """One step on the whole context: Xi_infinity of Prop. 3.6. Default: `advance`."""
        return self.advance(s, lam, S, t)

    def advance_vjp(self, s: State, lam: Hyper, S: Context, t: Time) -> Product:
        """alpha -> (A alpha, B alpha) of the step `advance`. Default: by reverse mode."""
        return _vjp(lambda s, lam: self.advance(s, lam, S, t), s, lam)

    def settle_vjp(self, s: State, lam: Hyper, S: Context, t: Time) -> Product:
        """alpha -> (A alpha, B alpha) of the step `settle`. Default: by reverse mode."""
        return _vjp(lambda s, lam: self.settle(s, lam, S, t), s, lam)

    def equilibrium(self, s: State, lam: Hyper, S: Context, t: Time) -> Equilibrium:
        """The equation that the limit of the iteration satisfies (Eq. 11).

        Default: the fixed point x = Xi(x, lam) of the differentiable part of the state.
        """
        x, rest = eqx.partition(s, eqx.is_inexact_array)

        def residual(x, lam):
            new = self.settle(eqx.combine(x, rest), lam, S, t)
            return optax.tree.sub(x, tree.inexact(new))

        return Equilibrium(x, residual, lambda x: self.read(eqx.combine(x, rest)), ())

    def at(self, w: Params) -> "AbstractDynamics":
        """The same algorithm started at w, which does not depend on lam: B_0 = 0."""
        descent.cannot_start_at(self)

    def mu(self, lam: Hyper, S: Context) -> Hyper:
        """What the loop is given in place of lam, computed once. Default: lam itself."""
        del S
        return lam

    def loop(self) -> "AbstractDynamics":
        """The algorithm in terms of mu: every rule runs this one. Default: itself."""
        return self


def _vjp(step: Callable[[State, Hyper], State], s: State, lam: Hyper) -> Product:
    """Only the differentiable part of the state has a cotangent: a count or a key has none."""
    x, rest = eqx.partition(s, eqx.is_inexact_array)
    smooth = lambda x, lam: tree.inexact(step(eqx.combine(x, rest), lam))
    return jax.vjp(smooth, x, lam)[1]


class _Constant(eqx.Module):
    w: Params

    def __call__(self, lam: Hyper, S: Context) -> Params:
        del lam, S
        return self.w


def constant(w: Params) -> Callable[[Hyper, Context], Params]:
    """Xi_0(lam) = w: a start that does not depend on the hyperparameters.

    **Arguments:**

    - `w`: the initial parameters, any pytree of floating arrays.

    **Returns:**

    A function (lam, S) -> w for the `init` of `Descent` or `Dynamics`.

    !!! example

        >>> import bilevax as bx, jax.numpy as jnp
        >>> bx.constant(jnp.zeros(2))(None, None)
        Array([0., 0.], dtype=float32)
    """
    return _Constant(w)
