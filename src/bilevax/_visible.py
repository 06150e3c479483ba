"""Which leaves of lam a rule can see: no hypergradient is ever silently zero.

Whether a leaf is connected is decided by the structure of a derivative, not by its
value: trace the pullback of a function and ask which outputs depend on its input. This
follows `stop_gradient`, rounding and integer casts as differentiation itself does. The answer is
the same for every rule, and found once for a problem.
"""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.extend.core import Literal
from jaxtyping import Array, PyTree

from . import _tree as tree
from ._compile import weak_cache
from ._dynamics import AbstractDynamics
from ._errors import check, outcome
from ._errors.warn import warn
from ._flow import DATA, NUMBER, Flow, Labels, leaf
from ._rules.base import AbstractRule, Channel
from ._types import Context, Hyper, Objective


def connected(fun: Callable[..., PyTree], lam: Hyper, s: PyTree) -> list[bool]:
    """For each leaf of lam: can the derivative of fun(lam, s) in it be nonzero?"""
    try:
        return _connected_backward(fun, lam, s)
    except ValueError:  # a while loop has no reverse mode; `Forward` needs none
        return _connected_forward(fun, lam, s)


def _connected_backward(fun: Callable[..., PyTree], lam: Hyper, s: PyTree) -> list[bool]:
    def backward(lam, s, c):
        out, pull = jax.vjp(lambda lam: tree.inexact(fun(lam, s)), lam)
        return pull(jax.tree.map(lambda a: jnp.full_like(a, c), out))

    jaxpr = jax.make_jaxpr(backward)(lam, s, 1.0).jaxpr
    reached = _reached(jaxpr, {jaxpr.invars[-1]})
    return [not isinstance(v, Literal) and v in reached for v in jaxpr.outvars]


def _connected_forward(fun: Callable[..., PyTree], lam: Hyper, s: PyTree) -> list[bool]:
    def push(lam, s, v):
        return jax.jvp(lambda lam: tree.inexact(fun(lam, s)), (lam,), (v,))[1]

    jaxpr = jax.make_jaxpr(push)(lam, s, lam).jaxpr
    n = len(jax.tree.leaves(lam))
    ends = {v for v in jaxpr.outvars if not isinstance(v, Literal)}
    return [bool(ends & _reached(jaxpr, {v})) for v in jaxpr.invars[len(jaxpr.invars) - n :]]


def _reached(jaxpr: Any, start: set) -> set:
    """What depends on the given variables."""
    reached = set(start)
    for eqn in jaxpr.eqns:
        if any(v in reached for v in eqn.invars if not isinstance(v, Literal)):
            reached.update(eqn.outvars)
    return reached


def require_visible(
    rule: AbstractRule,
    xi: AbstractDynamics,
    lam: Hyper,
    S: Context,
    f: Objective | None,
) -> None:
    """Warn of each leaf of lam that the rule cannot see; refuse if it sees none.

    f's own dependence on lam is seen by every rule. Without f (in `solve`) a leaf that
    the inner loop does not use may serve elsewhere, and is nobody's mistake.
    """
    with outcome.given(S):
        s = jax.eval_shape(lambda lam, S: xi.start(lam, S), lam, S)  # a method would compare its xi
        reach = _reach(rule, xi, lam, S, s)
        direct, read = _read(f, xi, lam, S, s) if f else (None, True)
    groups: dict[tuple[str, bool], list[str]] = {}
    for i, (path, _) in enumerate(jax.tree_util.tree_leaves_with_path(lam)):
        enters = [c for c in (Channel.START, Channel.STEP) if reach[c][i]]
        seen = read and any(reach[c][i] for c in reach if c in rule.sees())
        used = direct is None or direct[i]
        if not seen and ((read and enters) or not used):
            where = _where(enters) if read or not enters else "w"
            groups.setdefault((where, used), []).append(check.name_of("lam", path))
    texts = [outcome.invisible(rule, names, *reason) for reason, names in groups.items()]
    blank = sum(len(names) for (_, used), names in groups.items() if not used)
    if direct and blank == len(direct):
        raise ValueError(outcome.all_invisible(texts))
    texts += _seen_in_part(rule, xi, lam, S, s, reach)
    for text in texts:
        warn(text, outcome.InvisibleLeafWarning)


@weak_cache
def _read(
    f: Objective, xi: AbstractDynamics, lam: Hyper, S: Context, s: PyTree
) -> tuple[list[bool], bool]:
    """The leaves of lam that f depends on directly, and whether it depends on w_T."""
    x, rest = eqx.partition(s, lambda a: jnp.issubdtype(a.dtype, jnp.inexact))

    def value(both, rest):
        lam, x = both
        return check.scalar(f(xi.read(eqx.combine(x, rest)), lam, S), "f")

    found = connected(value, (lam, x), rest)
    n = len(jax.tree.leaves(lam))
    return found[:n], any(found[n:])


@weak_cache
def entrances(xi: AbstractDynamics, lam: Hyper, S: Context, s: PyTree) -> dict[Channel, list[bool]]:
    """For each leaf of lam: does it enter through the start, through the steps?"""
    return {
        Channel.START: connected(lambda lam, s: xi.start(lam, S), lam, s),
        Channel.STEP: connected(lambda lam, s: xi.advance(s, lam, S, _first()), lam, s),
    }


def _first() -> Array:
    """t = 0, an array as in the loop."""
    return jnp.zeros((), jnp.int32)


def _reach(rule, xi, lam, S, s) -> dict[Channel, list[bool]]:
    reach = dict(entrances(xi, lam, S, s))
    if Channel.OPTIMUM in rule.sees():
        reach[Channel.OPTIMUM] = _in_residual(xi, lam, S, s)
    return reach


@weak_cache
def _in_residual(xi: AbstractDynamics, lam: Hyper, S: Context, s: PyTree) -> list[bool]:
    def residual(lam, s):
        equilibrium = xi.equilibrium(s, lam, S, _first())
        return equilibrium.residual(equilibrium.x, lam)

    return connected(residual, lam, s)


def _seen_in_part(rule, xi, lam, S, s, reach) -> list[str]:
    """One sentence for the leaves that act in some steps only, unless the rule sees each step."""
    if Channel.EACH in rule.sees():
        return []
    paths = [path for path, _ in jax.tree_util.tree_leaves_with_path(lam)]
    chosen = [i for i in sorted(switched(xi, lam, S, s)) if reach[Channel.STEP][i]]
    names = [check.name_of("lam", paths[i]) for i in chosen]
    return [outcome.seen_in_part(rule, names)] if names else []


@weak_cache
def switched(xi: AbstractDynamics, lam: Hyper, S: Context, s: PyTree) -> set[int]:
    """The leaves of lam that the number of a step switches, or a count in the state."""
    x, rest = eqx.partition(s, lambda a: jnp.issubdtype(a.dtype, jnp.inexact))
    arrays, static = eqx.partition(S, eqx.is_array)

    def step(lam, rest, t, x, arrays):
        S = eqx.combine(arrays, static)
        return tree.inexact(xi.advance(eqx.combine(x, rest), lam, S, t))

    closed = jax.make_jaxpr(step)(lam, rest, _first(), x, arrays)
    count = lambda x: len(jax.tree.leaves(x))
    labels = [leaf(i) for i in range(count(lam))]
    labels += [Labels({NUMBER})] * (count(rest) + 1)
    labels += [Labels({DATA})] * (count(x) + count(arrays))
    return Flow(closed, labels).switched


def _where(enters: list[Channel]) -> str:
    """In words, where a leaf enters that the rule does not see."""
    if not enters:
        return "nowhere"
    if Channel.STEP in enters:
        return "the optimizer"
    return "the initialisation"
