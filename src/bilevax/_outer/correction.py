"""The direction of a run with audits: the rule's h, corrected by what the last audit found.

    h(lam) = h_rule(lam) + delta,    delta = h_exact(lam_a) - h_rule(lam_a)

At an audit the direction is exact, and the steps since the last one are taken again.
"""

from typing import NamedTuple

import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float

from .. import _tree as tree
from .._types import Hyper, Report
from .audits import Audits, LastAudit
from .batch import Means

FAR = 0.25
"""An audit comes when delta is expected to have changed by this part of the corrected h."""
SMALL = 1e-3
"""An exact h that is so much smaller than the largest one was: there is nothing left to find."""
WILD = 10.0
"""A rule whose h is so many times larger than any exact one was is not followed."""


class Direction(NamedTuple):
    h: Hyper
    audit: LastAudit | None
    again: Bool[Array, ""]
    """This hyper-iteration must be taken again, with an audit."""
    retake: Bool[Array, ""]
    """Those since the last audit are to be taken again, with what this one found."""
    record: dict[str, Array]


def audited_direction(audits: Audits, last: LastAudit, means: Means, lam: Hyper) -> Direction:
    """Of a hyper-iteration with an audit, if one is due, or without."""
    moved = tree.norm(optax.tree.sub(lam, last.pause.lam)) if last.pause else last.size
    corrected = optax.tree.add(means.h, last.delta)
    audit, refused, retake = _at_audit(audits, last, means, moved)
    between, again = _between(audits, last, means, last.slope * moved, tree.norm(corrected))
    audit = optax.tree.where(last.due, audit, between)
    h, again = optax.tree.where(last.due, means.exact, corrected), again & ~last.due
    if not audits.corrects:
        h, again = means.h, jnp.asarray(False)
    record = {"audit": last.due, "audit_error": audit.error, "audit_cosine": audit.cosine}
    record["audit_refused"] = last.due & refused
    record = {name: jnp.asarray(a, tree.widest(means.h)) for name, a in record.items()}
    return Direction(h, audit, again, last.due & retake, record)


def _at_audit(
    audits: Audits, last: LastAudit, means: Means, moved: Float[Array, ""]
) -> tuple[LastAudit, Bool[Array, ""], Bool[Array, ""]]:
    """The audit, whether the rule is to be refused, and whether to take the pause again.

    Not if delta has changed by more than the exact h: then nobody knows how it went in between.
    """
    exact, first = means.exact, last.age < 0
    delta = optax.tree.sub(exact, means.h)
    size = tree.norm(exact)
    largest = jnp.maximum(last.largest, size)
    wild = ~(tree.norm(means.h) <= WILD * largest)  # also if it is not finite
    uphill = ~(tree.dot(optax.tree.add(means.h, last.delta), exact) > 0)
    uphill &= (size > SMALL * largest) & ~first  # where the run has arrived, signs are chance
    refused = (wild | _distrusted(means.report) | uphill) & audits.corrects
    changed = tree.norm(optax.tree.sub(delta, last.delta))
    slope = jnp.where(first | ~(moved > 0), last.slope, changed / tree.positive(moved))
    slope = jnp.where(jnp.isfinite(changed), slope, jnp.inf)
    finite = tree.all_finite(means.h)
    error = jnp.where(finite, tree.norm(delta) / tree.positive(size), jnp.inf)
    lengths = tree.positive(tree.norm(means.h) * size)
    cosine = jnp.where(finite, tree.dot(means.h, exact) / lengths, 0.0)
    age, due = jnp.zeros_like(last.age), refused | (audits.pause == 1)
    saved = _saved(audits, last) - jnp.where(first, 0, 1)
    audit = LastAudit(
        delta, means.h, size, largest, slope, age, saved, due, error, cosine, last.pause
    )
    return audit, refused, ~refused & ~first & (changed <= size)


def _between(
    audits: Audits,
    last: LastAudit,
    means: Means,
    expected: Float[Array, ""],
    length: Float[Array, ""],
) -> tuple[LastAudit, Bool[Array, ""]]:
    """What the audit is now; and whether h may not be followed, because it is too far from it.

    `expected` is how much delta may have changed, `length` that of the corrected h.
    """
    age, saved = last.age + 1, _saved(audits, last)
    due = age + 1 >= audits.longest
    if not audits.corrects:
        return last._replace(age=age, due=due), jnp.asarray(False)
    known = jnp.maximum(last.size, SMALL * last.largest)
    due |= ~(expected <= FAR * length) & (saved >= 1)
    due |= (expected > known) & jnp.isfinite(last.slope)  # whatever the share
    changed = tree.norm(optax.tree.sub(means.h, last.h))
    reach = jnp.minimum(jnp.maximum(last.size, tree.norm(last.h)), last.largest)
    again = ~(changed <= reach) | _distrusted(means.report)  # also if it is not finite
    followed = last._replace(age=age, saved=saved, due=due)
    return optax.tree.where(again, last._replace(due=jnp.asarray(True)), followed), again


def _saved(audits: Audits, last: LastAudit) -> Float[Array, ""]:
    """Audits that the share allows, one hyper-iteration later."""
    return last.saved + 1 / audits.pause


def _distrusted(report: Report) -> Bool[Array, ""]:
    """Whether the rule says of its own h that its error may be as large as h.

    `subspace` is a part of the error, and infinite where frozen steps expand.
    """
    error = report.get("error", report.get("subspace"))
    return jnp.asarray(False) if error is None else ~(error < 1)
