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
import lineax as lx
import optax
from jaxtyping import PyTree

from . import _check as check
from . import _tree as tree
from ._types import Context, Hyper, Objective, Params, State, Time


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


class AbstractDynamics(eqx.Module):
    """The interface between inner algorithms and rules.

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
        """The parameters w inside the state."""

    @abc.abstractmethod
    def settle(self, s: State, lam: Hyper, S: Context, t: Time) -> State:
        """One step on the whole context: Xi_infinity of Prop. 3.6."""

    @abc.abstractmethod
    def equilibrium(self, s: State, lam: Hyper, S: Context, t: Time) -> Equilibrium:
        """The equation that the limit of the iteration satisfies (Eq. 11)."""


def everything(s: State) -> Params:
    """The default of `Dynamics.params`: the whole state is w."""
    return s


class Dynamics(AbstractDynamics):
    """Any iterative algorithm, given by its functions.

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

    def settle(self, s: State, lam: Hyper, S: Context, t: Time) -> State:
        return self.advance(s, lam, S, t)

    def equilibrium(self, s: State, lam: Hyper, S: Context, t: Time) -> Equilibrium:
        """The fixed point x = Xi(x, lam) of the differentiable part of the state."""
        x, rest = eqx.partition(s, eqx.is_inexact_array)

        def residual(x, lam):
            new = self.settle(eqx.combine(x, rest), lam, S, t)
            return tree.sub(x, tree.inexact(new))

        return Equilibrium(x, residual, lambda x: self.read(eqx.combine(x, rest)), ())


class Iterate(NamedTuple):
    """The state of `Descent`: the parameters and the optimizer's memory."""

    w: Params
    opt: PyTree


def whole(S: Context, t: Time) -> Context:
    """The default of `Descent.sample`: every step sees the whole context."""
    del t
    return S


class Descent(AbstractDynamics):
    """Minimise g(w, lam, S) over w with an optax optimizer.

    **Arguments:**

    - `g`: (w, lam, S) -> scalar, the inner objective.
    - `init`: (lam, S) -> w_0. For a fixed start write `bx.constant(w_0)`.
    - `opt`: an optax optimizer, or a function lam -> optimizer, which makes its
        learning rate, momentum or weight decay hyperparameters.
    - `sample`: (S, t) -> S_t, what step t = 0, ..., T-1 sees of S: its minibatch.
        Draw randomness from `jax.random.fold_in(key, t)`, with the key in S, so that
        every recomputation of a step sees the same batch. `Implicit` and `Neumann`
        describe the optimum of g on the whole S. Default: all of S, always.

    !!! example

        >>> import bilevax as bx, jax.numpy as jnp, optax
        >>> g = lambda w, lam, S: jnp.sum((w - lam) ** 2) / 2
        >>> xi = bx.Descent(g, bx.constant(jnp.zeros(2)), optax.sgd(0.5))
        >>> bx.solve(xi, jnp.ones(2), T=2)
        Array([0.75, 0.75], dtype=float32)
    """

    g: Objective
    init: Callable[[Hyper, Context], Params]
    opt: optax.GradientTransformation | Callable[[Hyper], optax.GradientTransformation]
    sample: Callable[[Context, Time], Context] = eqx.field(default=whole)

    def __check_init__(self):
        check.function(self.g, "g", "(w, lam, S) -> scalar")
        check.function(self.init, "init", "(lam, S) -> w_0", "for a fixed start use bx.constant(w)")
        if not _is_optimizer(self.opt):
            check.function(self.opt, "opt", "lam -> optimizer, or an optax optimizer")
        check.function(self.sample, "sample", "(S, t) -> S_t")

    def start(self, lam: Hyper, S: Context) -> State:
        w = check.floating(self.init(lam, S), "w")
        with jax.numpy_dtype_promotion("standard"):  # optax mixes dtypes on purpose
            return Iterate(w, check.arrays(self._optimizer(lam).init(w)))

    def advance(self, s: State, lam: Hyper, S: Context, t: Time) -> State:
        return self._update(s, lam, self.sample(S, t))

    def read(self, s: State) -> Params:
        return s.w

    def settle(self, s: State, lam: Hyper, S: Context, t: Time) -> State:
        del t
        return self._update(s, lam, S)

    def equilibrium(self, s: State, lam: Hyper, S: Context, t: Time) -> Equilibrium:
        """Stationarity of g, whose Jacobian is the Hessian of g (Eq. 11)."""
        del t
        gradient = jax.grad(self._objective)
        tags = frozenset({lx.symmetric_tag, lx.positive_semidefinite_tag})
        residual = lambda w, lam: gradient(w, lam, S)
        return Equilibrium(s.w, residual, lambda w: w, tags)

    def _objective(self, w: Params, lam: Hyper, S: Context):
        return check.scalar(self.g(w, lam, S), "g")

    def _optimizer(self, lam: Hyper) -> optax.GradientTransformationExtraArgs:
        opt = self.opt if _is_optimizer(self.opt) else self.opt(lam)  # pyright: ignore
        if not _is_optimizer(opt):
            check.instance(opt, tuple, "opt(lam)", "an optax optimizer")
        return optax.with_extra_args_support(opt)  # pyright: ignore

    def _update(self, s: Iterate, lam: Hyper, S_t: Context) -> Iterate:
        value, gradient = jax.value_and_grad(self._objective)(s.w, lam, S_t)
        line = lambda w: self._objective(w, lam, S_t)
        with jax.numpy_dtype_promotion("standard"):
            updates, opt = self._optimizer(lam).update(
                gradient, s.opt, s.w, value=value, grad=gradient, value_fn=line
            )
            w = optax.apply_updates(s.w, updates)
        new = Iterate(w, check.arrays(opt))
        check.same_state(s, new)
        return new


def _is_optimizer(opt: Any) -> bool:
    return isinstance(opt, (optax.GradientTransformation, optax.GradientTransformationExtraArgs))


class Prepared(AbstractDynamics):
    """An inner algorithm whose hyperparameters are prepare(lam, S), computed once.

    What depends on lam and S alone, such as the features of the data under a learned
    representation, is taken out of the inner loop, and so is its derivative: a rule gathers
    the cotangent of what was prepared, and one pullback takes it to lam. The numbers are
    those of an inner problem that prepares anew in every step.

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
        return check.floating(self.prepare(lam, S), "prepare(lam, S)")

    def start(self, lam: Hyper, S: Context) -> State:
        return self.xi.start(self.mu(lam, S), S)

    def advance(self, s: State, lam: Hyper, S: Context, t: Time) -> State:
        return self.xi.advance(s, self.mu(lam, S), S, t)

    def read(self, s: State) -> Params:
        return self.xi.read(s)

    def settle(self, s: State, lam: Hyper, S: Context, t: Time) -> State:
        return self.xi.settle(s, self.mu(lam, S), S, t)

    def equilibrium(self, s: State, lam: Hyper, S: Context, t: Time) -> Equilibrium:
        x, residual, read, tags = self.xi.equilibrium(s, self.mu(lam, S), S, t)
        return Equilibrium(x, lambda x, lam: residual(x, self.mu(lam, S)), read, tags)


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
