"""The direction of a run with audits: the rule's h, corrected by what the last audit found.

    h(lam) = h_rule(lam) + delta,    delta = h_exact(lam_a) - h_rule(lam_a)

At an audit the direction is exact, and what was missed since the last one is made up for.
"""

from typing import NamedTuple

import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Int

from .. import _tree as tree
from .._types import Hyper, Report
from .audits import Audits, LastAudit
from .batch import Means

STILL = 0.03
"""If delta has changed by less than this part of the exact h, the next pause is twice as long."""
LONGEST = 100
"""Hyper-iterations, at most."""
REPAID = 2.0
"""The most that one audit makes up for, in differences of delta."""
SMALL = 1e-3
"""An exact h that is so much smaller than the largest one was: there is nothing left to find."""
WILD = 10.0
"""A rule whose h is so many times larger than any exact one was is not followed."""


class Direction(NamedTuple):
    h: Hyper
    audit: LastAudit | None
    again: Bool[Array, ""]
    """This hyper-iteration must be taken again, with an audit."""
    record: dict[str, Array]


def audited_direction(audits: Audits, last: LastAudit, means: Means) -> Direction:
    """Of a hyper-iteration with an audit, if one is due, or without."""
    h, audit, refused = _at_audit(audits, last, means)
    h_between, between, again = _between(audits, last, means)
    chosen = lambda a, b: tree.select(last.due, a, b)
    audit = chosen(audit, between)
    if not audits.corrects:
        h, h_between, again = means.h, means.h, jnp.asarray(False)
    record = {"audit": last.due, "audit_error": audit.error, "audit_cosine": audit.cosine}
    record["audit_refused"] = last.due & refused
    record = {name: jnp.asarray(a, tree.widest(means.h)) for name, a in record.items()}
    return Direction(chosen(h, h_between), audit, again & ~last.due, record)


def _at_audit(
    audits: Audits, last: LastAudit, means: Means
) -> tuple[Hyper, LastAudit, Bool[Array, ""]]:
    """The exact h with what was missed, the audit, and whether the rule is to be refused.

    delta was taken to stay, and has changed: over the hyper-iterations in between, evenly, so
    that about half of the change was missed in each of them.
    """
    exact, first = means.exact, last.age < 0
    delta = optax.tree.sub(exact, means.h)
    size = tree.norm(exact)
    largest = jnp.maximum(last.largest, size)
    wild = ~(tree.norm(means.h) <= WILD * largest)  # also if it is not finite
    uphill = ~(tree.dot(optax.tree.add(means.h, last.delta), exact) > 0)
    uphill &= (size > SMALL * largest) & ~first  # where the run has arrived, signs are chance
    refused = wild | _distrusted(means.report) | uphill
    repaid = jnp.clip(last.age.astype(size.dtype) / 2, 0.0, REPAID)
    repaid = jnp.where(refused, 0.0, repaid)
    changed = optax.tree.sub(delta, last.delta)
    wait = _next_wait(audits, last, tree.norm(changed), size, size > SMALL * largest)
    missed = tree.select(repaid > 0, changed, exact)
    finite = tree.all_finite(means.h)
    error = jnp.where(finite, tree.norm(delta) / tree.positive(size), jnp.inf)
    lengths = tree.positive(tree.norm(means.h) * size)
    cosine = jnp.where(finite, tree.dot(means.h, exact) / lengths, 0.0)
    age, due = jnp.zeros_like(last.age), refused | (wait == 0)
    audit = LastAudit(delta, means.h, size, largest, age, wait, due, error, cosine)
    return optax.tree.add(exact, tree.scale(repaid, missed)), audit, refused


def _next_wait(
    audits: Audits,
    last: LastAudit,
    changed: Float[Array, ""],
    size: Float[Array, ""],
    under_way: Bool[Array, ""],
) -> Int[Array, ""]:
    """How many hyper-iterations to follow this audit.

    More, if delta hardly changed over the last ones. Fewer, if it changed by more than the exact h:
    the step size of the run is too large for pauses as long as that.
    """
    usual = jnp.asarray(audits.pause - 1, last.wait.dtype)
    if not audits.corrects:
        return usual
    longer = 2 * last.wait + 1
    still = jnp.minimum(longer, jnp.maximum(LONGEST, usual))
    wait = jnp.where(changed <= STILL * size, still, jnp.minimum(longer, usual))
    wait = jnp.where((changed > size) & under_way, last.age // 2, wait)
    return jnp.where(last.age < 0, usual, wait)


def _between(
    audits: Audits, last: LastAudit, means: Means
) -> tuple[Hyper, LastAudit, Bool[Array, ""]]:
    """The corrected h; and whether it may not be followed, because it is too far from the audit."""
    moved = tree.norm(optax.tree.sub(means.h, last.h))
    reach = jnp.minimum(jnp.maximum(last.size, tree.norm(last.h)), last.largest)
    again = ~(moved <= reach) | _distrusted(means.report)  # also if it is not finite
    age = last.age + 1
    followed = last._replace(age=age, due=age >= last.wait)
    audit = tree.select(again, last._replace(due=jnp.asarray(True)), followed)
    return optax.tree.add(means.h, last.delta), audit if audits.corrects else followed, again


def _distrusted(report: Report) -> Bool[Array, ""]:
    """Whether the rule says of its own h that its error may be as large as h.

    `subspace` is a part of the error, and infinite where frozen steps expand.
    """
    error = report.get("error", report.get("subspace"))
    return jnp.asarray(False) if error is None else ~(error < 1)
