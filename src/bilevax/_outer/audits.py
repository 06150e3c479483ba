"""Audits: in some hyper-iterations the rule is compared with an exact one."""

import math
from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Int

from .. import _tree as tree
from .._errors import audits as check
from .._errors import check as base
from .._rules.base import AbstractRule, Channel
from .._rules.budget import root
from .._rules.reverse import Reverse
from .._types import Hyper

COST = 3.0
"""An exact hypergradient, in forward passes."""


class Audit(eqx.Module):
    """Reports along a run of `minimize` how good its rule is, and changes nothing in it.

    `history` then has, for each hyper-iteration, what the last audit found: `audit_error`, the
    relative error of the rule's h, and `audit_cosine`, the cosine of its angle with the exact h.
    `audit` is 1 in a hyper-iteration with an audit.

    **Arguments:**

    - `rule`: an exact rule. Default: `Reverse` with segments of about sqrt(T) steps.
    - `share`: the part of the run's time that audits may take, about.

    !!! example

        >>> import bilevax as bx, optax
        >>> from bilevax import problems
        >>> p = problems.quadratic(T=20)
        >>> result = bx.minimize(p.f, p.xi, bx.Reverse(K=2), p.lam, T=p.T, steps=3, S=p.S,
        ...                      optimizer=optax.sgd(0.01), audit=bx.Audit())
        >>> float(result.history["audit"][0]), 0 < float(result.history["audit_error"][0]) < 1
        (1.0, True)
    """

    rule: AbstractRule | None = None
    share: float = eqx.field(default=0.05, static=True, converter=base.plain(float))

    def __check_init__(self):
        _check(self)


class Correction(eqx.Module):
    """Removes the bias of a rule from a run of `minimize`: audits, and what they find in between.

    An audit finds delta, the exact h minus the rule's. Until the next one the run follows
    h(lam) + delta, whose error is the change of the rule's error since the audit. Where lam
    stops moving, this error goes to zero: the run ends where the exact hypergradient is zero.

    **Arguments:**

    - `rule`: an exact rule. Default: `Reverse` with segments of about sqrt(T) steps.
    - `share`: the part of the run's time that audits may take, about. With less of it the run
        is cheaper and follows the exact one less closely.

    !!! example

        >>> import bilevax as bx, optax
        >>> from bilevax import problems
        >>> p = problems.toy(pull=5.0)
        >>> run = lambda correct: bx.minimize(p.f, p.xi, bx.Reverse(K=5), p.lam, T=p.T, steps=100,
        ...     S=p.S, optimizer=optax.sgd(0.01), correct=correct)
        >>> exact = bx.hypergradient(p.f, p.xi, bx.Reverse(), T=p.T)
        >>> size = lambda lam: float(optax.tree.norm(exact(lam, p.S).h))
        >>> size(run(False).lam) > 1, size(run(True).lam) < 1e-4
        (True, True)
    """

    rule: AbstractRule | None = None
    share: float = eqx.field(default=0.5, static=True, converter=base.plain(float))

    def __check_init__(self):
        _check(self)


def _check(given: Audit | Correction) -> None:
    rule = given.rule
    if rule is not None:
        base.instance(rule, AbstractRule, "rule", "an exact rule, as in bx.Reverse(segment=10)")
    exact = rule is None or Channel.EACH in rule.sees()
    check.audit(type(given).__name__, rule, exact, given.share)


class Audits(eqx.Module):
    """`Audit` or `Correction`, settled for a run."""

    rule: AbstractRule
    pause: int = eqx.field(static=True)
    """Hyper-iterations from one audit to the next, at least."""
    corrects: bool = eqx.field(static=True)


def settled(given: Audit | Correction | None, T: int) -> Audits | None:
    """With one audit in n, audits take COST / (COST + n - 1) of the time."""
    if given is None:
        return None
    rule = given.rule or Reverse(segment=root(T))
    pause = math.ceil(COST * (1 - given.share) / given.share + 1 - 1e-9)
    return Audits(rule, pause, isinstance(given, Correction))


class LastAudit(NamedTuple):
    """What a run remembers of its last audit."""

    delta: Hyper
    """The exact h minus the rule's."""
    h: Hyper
    """The rule's h."""
    size: Float[Array, ""]
    """The norm of the exact h."""
    largest: Float[Array, ""]
    """The largest such norm of all audits."""
    age: Int[Array, ""]
    """Hyper-iterations since then; negative before the first audit."""
    wait: Int[Array, ""]
    """Hyper-iterations until the next audit."""
    due: Bool[Array, ""]
    """Whether the next hyper-iteration is an audit."""
    error: Float[Array, ""]
    cosine: Float[Array, ""]


def first_audit(lam: Hyper) -> LastAudit:
    """Before any audit: it is due."""
    zeros = optax.tree.zeros_like(lam)
    zero = jnp.zeros((), tree.widest(lam))
    none = jnp.zeros((), jnp.int32)
    return LastAudit(zeros, zeros, zero, zero, none - 1, none, jnp.asarray(True), zero, zero)
