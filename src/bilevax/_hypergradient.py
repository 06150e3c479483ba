"""h = grad_lam f + pull(grad_w f): from a rule to a hypergradient."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.core
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Bool, PyTree

from . import _tree as tree
from ._compile import weak_jit
from ._dynamics import AbstractDynamics
from ._errors import check, outcome
from ._rules.base import AbstractRule, Channel, apply
from ._types import Context, Hyper, Objective, Params, Report
from ._visible import require_visible


class Estimate(NamedTuple):
    """What `hypergradient` returns.

    !!! example

        >>> import bilevax as bx
        >>> from bilevax import problems
        >>> p = problems.counterexample()
        >>> value, h, w, report = bx.hypergradient(p.f, p.xi, bx.Neumann(3), T=p.T)(p.lam, p.S)
        >>> h.shape == p.lam.shape, report
        (True, {})
    """

    value: Any
    """f(w_T, lam, S): a scalar, or with `has_aux` a pair of it and what else f returned."""
    h: Hyper
    """The hypergradient d_lam f, or the rule's approximation of it; shaped like lam."""
    w: Params
    """w_T, the parameters after the inner loop."""
    report: Report
    """What the rule says about its answer; empty for most rules."""


def hypergradient(
    f: Callable[..., Any],
    xi: AbstractDynamics,
    rule: AbstractRule,
    *,
    T: int,
    has_aux: bool = False,
) -> Callable[..., Estimate]:
    """The gradient of lam -> f(w_T(lam), lam, S), by the given rule.

    **Arguments:**

    - `f`: (w, lam, S) -> scalar, the outer objective.
    - `xi`: the inner algorithm, a `Descent` or a `Dynamics`.
    - `rule`: how to differentiate: `Reverse(K=5)`, `Implicit()`, ...
    - `T`: the number of inner steps.
    - `has_aux`: whether f returns a pair (scalar, anything else), as in `jax.value_and_grad`.

    **Returns:**

    A function (lam, S) -> `Estimate(value, h, w, report)`. It compiles itself at the
    first call and again only for new shapes; it may be used inside `jax.jit`,
    `jax.vmap` and `jax.grad`.

    !!! example

        >>> import bilevax as bx, jax.numpy as jnp, optax
        >>> g = lambda w, lam, S: jnp.sum((w - lam) ** 2) / 2
        >>> f = lambda w, lam, S: jnp.sum(w)
        >>> xi = bx.Descent(g, bx.constant(jnp.zeros(2)), optax.sgd(0.5))
        >>> bx.hypergradient(f, xi, bx.Reverse(), T=2)(jnp.ones(2)).h
        Array([0.75, 0.75], dtype=float32)
    """
    check_problem(f, xi, rule)
    T = check.horizon(T)

    checked = _checked.given(f, xi, rule, T, has_aux)
    texts = [outcome.diverged(T), outcome.BAD_VALUE, outcome.BAD_H]

    def hg(lam: Hyper, S: Context = None) -> Estimate:
        out, bad = checked(check.floating(lam, "lam"), check.context(S))
        if isinstance(bad, jax.core.Tracer):
            return outcome.finite(out, bad[:3], texts)
        bad: Any = np.asarray(bad)  # one transfer
        if True in bad.tolist():
            outcome.not_zero(rule, bad[3])
            causes = [outcome.blamed(lam=lam, S=S) + text for text in texts]
            return outcome.finite(out, bad[:3], causes)
        return out

    return hg


def estimate(
    f: Callable[..., Any],
    xi: AbstractDynamics,
    rule: AbstractRule,
    lam: Hyper,
    S: Context,
    T: int,
    has_aux: bool = False,
    exact: AbstractRule | None = None,
    memory: PyTree = None,
) -> tuple[Estimate, Bool[Array, " 4"], Hyper | None, PyTree]:
    """The estimate, what is wrong with it, the h of an exact rule if one is given, and what the
    rule passes on if it begins with a memory.

    Wrong: w, f or h not finite, h zero where it may not be. Where there is an exact h, it is the
    one that must be finite: the other is compared with it.
    """
    w, pull = apply(_way(rule, exact, memory), xi, lam, S, T)
    (value, aux), (alpha, direct) = gradient(f, w, lam, S, has_aux)
    indirect, report, *more = pull(alpha)
    if memory is not None and exact is None:
        report, memory = report
    h, *h_exact = (optax.tree.add(direct, part) for part in (indirect, *more))
    bad = [~tree.all_finite(x) for x in (tree.inexact(w), value, *(h_exact or [h]))]
    blank = jnp.asarray(False) if h_exact else _blank(rule, alpha, h)
    out = Estimate((value, aux) if has_aux else value, h, w, report)
    return out, jnp.stack([*bad, blank]), h_exact[0] if h_exact else None, memory


def _way(rule: AbstractRule, exact: AbstractRule | None, memory: PyTree) -> Callable[..., Any]:
    if exact is not None:
        return partial(rule.audited, exact)
    return rule.vjp if memory is None else partial(rule.warm_vjp, memory)


def gradient(f: Callable[..., Any], w: Params, lam: Hyper, S: Context, has_aux: bool):
    """((f, aux), (grad_w f, grad_lam f)); what is not a number in w is only read."""
    smooth, rest = eqx.partition(w, eqx.is_inexact_array)

    def objective(smooth, lam):
        w = eqx.combine(smooth, rest)
        value, aux = check.pair(f(w, lam, S)) if has_aux else (f(w, lam, S), None)
        return check.scalar(value, "f"), aux

    return jax.value_and_grad(objective, (0, 1), has_aux=True)(smooth, lam)


def _blank(rule: AbstractRule, alpha: Params, h: Hyper) -> Bool[Array, ""]:
    """Whether a rule that leaves terms out has left out all of them: h is zero, alpha is not."""
    if Channel.EACH in rule.sees() or not tree.size(h):
        return jnp.asarray(False)
    return (tree.norm(h) == 0) & (tree.norm(alpha) > 0)


@partial(weak_jit, waits_for=lambda out: out[1])  # one program: then the estimate is there, too
def _checked(f, xi, rule, T, has_aux, lam, S):
    require_visible(rule, xi, lam, S, loss_of(f, has_aux))
    return estimate(f, xi, rule, lam, S, T, has_aux)[:2]


class _Loss(eqx.Module):
    f: Callable[..., Any]

    def __call__(self, w: Params, lam: Hyper, S: Context) -> Any:
        return check.pair(self.f(w, lam, S))[0]


def loss_of(f: Callable[..., Any], has_aux: bool) -> Objective:
    """f without what else it returns."""
    return _Loss(f) if has_aux else f


def check_problem(f: Objective, xi: AbstractDynamics, rule: AbstractRule) -> None:
    check_objective(f)
    check_loop(xi, rule)


def check_loop(xi: AbstractDynamics, rule: AbstractRule) -> None:
    check_dynamics(xi)
    check.instance(rule, AbstractRule, "rule", "a rule, as in bx.Reverse(K=5)")


def check_objective(f: Objective) -> None:
    check.function(f, "f", "(w, lam, S) -> scalar")


def check_dynamics(xi: AbstractDynamics) -> None:
    how = "an inner algorithm, as in bx.Descent(g, init, opt)"
    check.instance(xi, AbstractDynamics, "xi", how)
