"""w_T(lam), with a rule as its derivative: from a rule to `jax.grad`."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.custom_derivatives import SymbolicZero

from . import _tree as tree
from ._compile import weak_jit, weakly
from ._dynamics import AbstractDynamics
from ._errors import check, outcome
from ._hypergradient import check_loop
from ._rules.base import AbstractRule, apply
from ._rules.reverse import Reverse
from ._types import Context, Hyper, Params
from ._visible import require_visible


def solve(
    xi: AbstractDynamics,
    lam: Hyper,
    S: Context = None,
    *,
    T: int,
    rule: AbstractRule = Reverse(),
) -> Params:
    """w_T(lam), differentiable by `jax.grad` with the given rule.

    It is for objectives that `hypergradient` does not fit, such as several inner problems inside
    one loss. It has derivatives by reverse mode, in lam only. If you differentiate S, or anything
    else that reaches the inner problem, you get an error and not zero.

    **Arguments:**

    - `xi`: the inner algorithm, a `Descent` or a `Dynamics`.
    - `lam`: the hyperparameters.
    - `S`: the context.
    - `T`: the number of inner steps.
    - `rule`: how to differentiate. Default: full back-propagation.

    **Returns:**

    w_T.

    !!! example

        >>> import bilevax as bx, jax, jax.numpy as jnp, optax
        >>> g = lambda w, lam, S: jnp.sum((w - lam) ** 2) / 2
        >>> xi = bx.Descent(g, bx.constant(jnp.zeros(2)), optax.sgd(0.5))
        >>> loss = lambda lam: jnp.sum(bx.solve(xi, lam, T=2, rule=bx.Reverse(K=1)))
        >>> jax.grad(loss)(jnp.ones(2))
        Array([0.5, 0.5], dtype=float32)
    """
    check_loop(xi, rule)
    lam = check.floating(lam, "lam")
    return _solve(xi, lam, check.context(S), rule, check.horizon(T))


@weak_jit
def _solve(xi, lam, S, rule, T):
    """The one place with a custom derivative; everything it depends on is an argument.

    A traced program keeps the functions of its custom derivatives: they hold xi weakly.
    """
    fixed, static = eqx.partition((xi, S), eqx.is_array)
    static = weakly(static)

    def run(lam, fixed):
        xi, S = eqx.combine(fixed, static())
        w, pull = apply(rule.vjp, xi, lam, S, T)
        bad = ~tree.all_finite(tree.inexact(w))[None]
        return outcome.finite(w, bad, [outcome.diverged(T)]), pull

    def forward(lam, fixed):
        check.unperturbed(fixed, ("xi", "S"))
        lam, fixed = jax.tree.map(lambda x: x.value, (lam, fixed))
        xi, S = eqx.combine(fixed, static())
        require_visible(rule, xi, lam, S, None)
        w, pull = run(lam, fixed)
        pull = eqx.filter_closure_convert(pull, tree.inexact(w))
        arrays, rest = eqx.partition(pull, eqx.is_array)
        return w, (arrays, _Static(rest))

    def backward(residuals, alpha):
        arrays, rest = residuals
        pull = eqx.combine(arrays, rest.value)
        lam_bar, _ = pull(jax.tree.map(_instantiate, alpha))
        lam_bar = outcome.finite(lam_bar, ~tree.all_finite(lam_bar)[None], [outcome.BAD_H])
        return lam_bar, None

    w_T = jax.custom_vjp(lambda lam, fixed: run(lam, fixed)[0])
    w_T.defvjp(forward, backward, symbolic_zeros=True)
    return w_T(lam, fixed)


class _Static(eqx.Module):
    """Carries what is not an array past `jax.custom_vjp`, which wants arrays only."""

    value: Any = eqx.field(static=True)


def _instantiate(alpha: Any):
    """A cotangent in full; None for what has none, an integer or a key."""
    form: Any = alpha.aval if isinstance(alpha, SymbolicZero) else alpha
    if not jnp.issubdtype(form.dtype, jnp.inexact):
        return None
    return jnp.zeros(form.shape, form.dtype) if isinstance(alpha, SymbolicZero) else alpha
