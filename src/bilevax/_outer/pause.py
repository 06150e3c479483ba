"""A pause between two audits, taken again when the second one has found how delta changed.

Over the pause the run followed h_rule + delta with the delta of its beginning. Now delta goes from
there to the new one, evenly. No inner loop runs again: the rule's h of each hyper-iteration is
kept, and only the optimizer takes its steps again.
"""

from collections.abc import Callable

import optax
from jax import lax
from jaxtyping import Array, PyTree

from .. import _tree as tree
from .._types import Hyper
from .audits import LastAudit, Pause

Step = Callable[[tuple[Hyper, PyTree], Hyper, Array], tuple[Hyper, PyTree]]


def retaken(step: Step, last: LastAudit, pause: Pause, delta: Hyper) -> tuple[Hyper, PyTree]:
    """lam and the optimizer's memory at the end of the pause that began with the last audit.

    `step` takes the two along an h, with a value; `delta` is the new one.
    """
    n = last.age + 1
    changed = optax.tree.sub(delta, last.delta)

    def again(j, at):
        part = j.astype(last.size.dtype) / n.astype(last.size.dtype)
        shift = optax.tree.add(last.delta, tree.scale(part, changed))
        return step(at, optax.tree.add(tree.take(pause.hs, j), shift), pause.values[j])

    return lax.fori_loop(0, n, again, (pause.lam, pause.opt))


def noted(
    last: LastAudit | None,
    audit: LastAudit | None,
    before: tuple[Hyper, PyTree],
    h: Hyper,
    value: Array,
) -> LastAudit | None:
    """The audit, with what it takes to take this hyper-iteration again, from `before`."""
    if last is None or audit is None or last.pause is None:
        return audit
    pause, at = last.pause, audit.age
    lam, opt = optax.tree.where(last.due, before, (pause.lam, pause.opt))
    values = pause.values.at[at].set(value.astype(pause.values.dtype))
    return audit._replace(pause=Pause(lam, opt, tree.put(pause.hs, at, h), values))
