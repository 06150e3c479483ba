"""Gradient descent on g by any optax optimizer."""

import dataclasses
import inspect
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import lineax as lx
import optax
from jaxtyping import PyTree

from .. import _tree as tree
from .._errors import check
from .._errors import descent as user
from .._types import Context, Hyper, Objective, Params, Product, State, Time
from .base import AbstractDynamics, Equilibrium, Stateful, constant
from .mixed import Slope, curvature, mixed_vjp, replaced, slope, trained


class Iterate(NamedTuple):
    """The state of `Descent`: the parameters and the optimizer's memory."""

    w: Params | Stateful
    """Of a model with a state, both."""
    opt: PyTree


def all_of(S: Context, t: Time) -> Context:
    """The default of `Descent.sample`: every step sees the whole context."""
    del t
    return S


class Descent(AbstractDynamics):
    """Minimise g(w, lam, S) over w with an optax optimizer (Xi of Eq. 4).

    **Arguments:**

    - `g`: (w, lam, S) -> scalar, the inner objective.
    - `init`: (lam, S) -> w_0. For a fixed start write `bx.constant(w_0)`. If it returns a
        `Stateful`, a model with running statistics or other state, then f and g get such a one
        in place of w, and g returns (scalar, new state). All rules follow the state, too.
    - `opt`: an optax optimizer, or a function lam -> optimizer, which makes its
        learning rate, momentum or weight decay hyperparameters.
    - `sample`: (S, t) -> S_t, what step t = 0, ..., T-1 sees of S: its minibatch.
        Draw randomness from `jax.random.fold_in(key, t)`, with the key in S, so that
        every recomputation of a step sees the same batch. `Implicit` and `Neumann`
        describe the optimum of g on the whole S. Default: all of S, always.
    - `symmetric`: whether to pull a step back in mixed mode, forward over reverse, which needs
        far less memory for deep networks. It trusts the second derivatives of g to be symmetric.
        They are, unless a `custom_vjp` or `custom_jvp` in g gives something else than the
        derivative; `check_gradient` and `diagnose` test that. `Forward` and
        `Reverse(policy=...)` do not use it.

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
    sample: Callable[[Context, Time], Context] = eqx.field(default=all_of)
    symmetric: bool = eqx.field(default=False, static=True)

    def __check_init__(self):
        check.function(self.g, "g", "(w, lam, S) -> scalar")
        check.function(self.init, "init", "(lam, S) -> w_0", "for a fixed start use bx.constant(w)")
        if not _is_optimizer(self.opt):
            check.function(self.opt, "opt", "lam -> optimizer, or an optax optimizer")
        check.function(self.sample, "sample", "(S, t) -> S_t")
        check.instance(self.symmetric, bool, "symmetric", "True or False")

    def start(self, lam: Hyper, S: Context) -> State:
        model = self.init(lam, S)
        w = check.floating(trained(model), "w")
        if isinstance(model, Stateful):
            model = model._replace(state=check.arrays(model.state))
        # optax mixes dtypes on purpose
        with jax.numpy_dtype_promotion("standard"), user.optimizer(self.opt):
            return Iterate(replaced(model, w), check.arrays(self._optimizer(lam).init(w)))

    def advance(self, s: State, lam: Hyper, S: Context, t: Time) -> State:
        return self._update(s, lam, self.sample(S, t))

    def read(self, s: State) -> Params:
        return s.w

    def settle(self, s: State, lam: Hyper, S: Context, t: Time) -> State:
        del t
        with user.whole(self.sample is not all_of):
            return self._update(s, lam, S)

    def advance_vjp(self, s: State, lam: Hyper, S: Context, t: Time) -> Product:
        if not self.symmetric:
            return super().advance_vjp(s, lam, S, t)
        return self._mixed_vjp(s, lam, self.sample(S, t))

    def settle_vjp(self, s: State, lam: Hyper, S: Context, t: Time) -> Product:
        if not self.symmetric:
            return super().settle_vjp(s, lam, S, t)
        with user.whole(self.sample is not all_of):
            return self._mixed_vjp(s, lam, S)

    def equilibrium(self, s: State, lam: Hyper, S: Context, t: Time) -> Equilibrium:
        """Stationarity of g, whose Jacobian is the Hessian of g (Eq. 11).

        The state of a model is at rest, too: state = new state. Together that is not symmetric.
        """
        del t
        x, rest = eqx.partition(s.w, eqx.is_inexact_array)
        objective = lambda model, lam: self._objective(model, lam, S)

        def residual(x, lam):
            with user.whole(self.sample is not all_of):
                found = slope(objective, eqx.combine(x, rest), lam)
            if not isinstance(x, Stateful):
                return found.gradient
            return Stateful(found.gradient, optax.tree.sub(x.state, tree.inexact(found.state)))

        def pull(lam):
            along = lambda v: Slope(jnp.zeros(()), trained(v), None)
            return lambda v: curvature(objective, s.w, lam, along(v))

        alone = not isinstance(x, Stateful) or not jax.tree.leaves(x.state)
        tags = frozenset({lx.symmetric_tag, lx.positive_semidefinite_tag} if alone else ())
        mixed = pull if self.symmetric and alone else None
        return Equilibrium(x, residual, lambda x: eqx.combine(x, rest), tags, mixed)

    def at(self, w: Params) -> "Descent":
        return dataclasses.replace(self, init=constant(w))

    def _objective(self, model: Params | Stateful, lam: Hyper, S: Context):
        """g, and the new state; None where there is none."""
        out, state = self.g(model, lam, S), None
        if isinstance(model, Stateful):
            out, state = check.loss_and_state(out)
            state = check.arrays(state)
        return check.scalar(out, "g"), state

    def _optimizer(self, lam: Hyper) -> optax.GradientTransformationExtraArgs:
        opt: Any = self.opt if _is_optimizer(self.opt) else self.opt(lam)  # pyright: ignore
        if not _is_optimizer(opt):
            check.instance(opt, tuple, "opt(lam)", "an optax optimizer")
        if isinstance(opt, optax.MultiSteps):
            opt = opt.gradient_transformation()
        return optax.with_extra_args_support(opt)

    def _update(self, s: Iterate, lam: Hyper, S_t: Context) -> Iterate:
        found = slope(lambda model, lam: self._objective(model, lam, S_t), s.w, lam)
        return self._follow(found, s, lam, S_t)

    def _follow(self, at: Slope, s: Iterate, lam: Hyper, S_t: Context) -> Iterate:
        """What the optimizer makes of a gradient."""
        along, w = lambda w: self._objective(replaced(s.w, w), lam, S_t)[0], trained(s.w)
        again = lambda w, i: jax.grad(along)(w)
        extra = {"value": at.value, "grad": at.gradient, "value_fn": along, "grad_fn": again}
        update = self._optimizer(lam).update
        with jax.numpy_dtype_promotion("standard"), user.optimizer(self.opt):
            updates, opt = update(at.gradient, s.opt, w, **_taken(update, extra))
            w = optax.apply_updates(w, updates)
        model = Stateful(w, at.state) if isinstance(s.w, Stateful) else w
        new = Iterate(model, check.arrays(opt))
        check.same_state(s, new)
        return new

    def _mixed_vjp(self, s: Iterate, lam: Hyper, S_t: Context) -> Product:
        objective = lambda model, lam: self._objective(model, lam, S_t)
        follow = lambda slope, s, lam: self._follow(slope, s, lam, S_t)
        return mixed_vjp(objective, follow, s, lam)


def _taken(update: Callable, extra: dict[str, Any]) -> dict[str, Any]:
    """Those of the extra arguments that an optimizer names; a chain takes what line searches need.

    Only SAM asks for `grad_fn`, and line searches refuse it.
    """
    known = inspect.signature(update).parameters
    chain = any(p.kind is inspect.Parameter.VAR_KEYWORD for p in known.values())
    return {k: x for k, x in extra.items() if k in known or (chain and k != "grad_fn")}


def _is_optimizer(opt: Any) -> bool:
    return isinstance(opt, (optax.GradientTransformation, optax.MultiSteps))
