"""Audits: in some hyper-iterations the rule is compared with an exact one."""

import math
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Int, PyTree

from .. import _tree as tree
from .._errors import audits as check
from .._errors import check as base
from .._rules.base import AbstractRule, Channel
from .._rules.budget import root
from .._rules.reverse import Reverse
from .._types import Hyper

COST = 3.0
"""An exact hypergradient, in forward passes."""
LONGEST = 32
"""Hyper-iterations from one audit of a correction to the next, at most, if `share` allows it."""


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
    h(lam) + delta, whose error is the change of the rule's error since the audit. The next audit
    knows this change, and the optimizer takes the steps in between again without it. Where lam
    stops moving, the error goes to zero: the run ends where the exact hypergradient is zero.

    **Arguments:**

    - `rule`: an exact rule. Default: `Reverse` with segments of about sqrt(T) steps.
    - `share`: the part of the run's time that audits may take, about: they come when delta is
        expected to have changed, and no more often than that. With less of it the run is cheaper
        and follows the exact one less closely.

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
    share: float = eqx.field(default=0.6, static=True, converter=base.plain(float))

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
    """Hyper-iterations from one audit to the next; of a correction, on average at least."""
    corrects: bool = eqx.field(static=True)

    @property
    def longest(self) -> int:
        """Hyper-iterations from one audit to the next, at most."""
        return max(self.pause, LONGEST) if self.corrects else self.pause


def settled(given: Audit | Correction | None, T: int) -> Audits | None:
    """With one audit in n, audits take COST / (COST + n - 1) of the time."""
    if given is None:
        return None
    rule = given.rule or Reverse(segment=root(T))
    pause = math.ceil(COST * (1 - given.share) / given.share + 1 - 1e-9)
    return Audits(rule, pause, isinstance(given, Correction))


class Pause(NamedTuple):
    """What it takes to take the steps since an audit again."""

    lam: Hyper
    """Before the step of the audit."""
    opt: PyTree
    hs: Hyper
    """The rule's h of each hyper-iteration since, that of the audit first, stacked."""
    values: Array


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
    slope: Float[Array, ""]
    """How much delta changed for how far lam moved, before it; infinite if that is not known."""
    age: Int[Array, ""]
    """Hyper-iterations since then; negative before the first audit."""
    saved: Float[Array, ""]
    """Audits that the share allows by now."""
    due: Bool[Array, ""]
    """Whether the next hyper-iteration is an audit."""
    error: Float[Array, ""]
    cosine: Float[Array, ""]
    pause: Pause | None
    """Of a correction."""


def first_audit(audits: Audits, lam: Hyper, opt: PyTree) -> LastAudit:
    """Before any audit: it is due."""
    zeros = optax.tree.zeros_like(lam)
    zero = jnp.zeros((), tree.widest(lam))
    pause, n = None, audits.longest
    if audits.corrects:
        copy = lambda x: jax.tree.map(jnp.copy, x)  # what is donated has one place
        pause = Pause(copy(lam), copy(opt), tree.stack_of_zeros(n, lam), jnp.zeros(n, zero.dtype))
    age, due, saved = jnp.asarray(-1, jnp.int32), jnp.asarray(True), zero + n / audits.pause
    return LastAudit(zeros, zeros, zero, zero, zero + jnp.inf, age, saved, due, zero, zero, pause)
