"""Many hyper-iterations in one device call (Eq. 1, or Eq. 2 with sampled contexts).

    lam_{tau+1} = lam_tau + update( mean over contexts of h(lam_tau, S) )

One program is compiled for a run, with the number of hyper-iterations as an argument: how
the run is cut into calls changes nothing in the numbers.
"""

import functools
from collections.abc import Callable
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jax import lax
from jaxtyping import Array, Bool, Float, Int, PyTree

from .. import _tree as tree
from .._compile import weak_jit, weakly
from .._loop import traced
from .._types import Context, Hyper
from .audits import LastAudit, first_audit
from .batch import Means, OuterProblem, Warm, mean_estimate
from .correction import Direction, audited_direction
from .devices import constrained, replicated
from .pause import noted, retaken

MAX_STEPS = 2048
"""The most hyper-iterations in one call: the length of its records."""

Records = dict[str, Array]


class OuterState(NamedTuple):
    """Everything that changes from one hyper-iteration to the next."""

    lam: Hyper
    opt: PyTree
    """The memory of the outer optimizer."""
    warm: Warm | None
    """For a warm start: what each context of the batch begins with, stacked."""
    tau: Int[Array, ""]
    """How many hyper-iterations have been taken."""
    smallest: Float[Array, ""]
    """The smallest value so far."""
    waited: Int[Array, ""]
    """Hyper-iterations since then."""
    audit: LastAudit | None
    """What the last audit found, if there are audits."""


def first_state(problem: OuterProblem, lam: Hyper, warm: Warm | None) -> OuterState:
    with jax.numpy_dtype_promotion("standard"):
        opt = tree.strong(problem.optimizer.init(lam))
    zero = jnp.zeros((), jnp.int32)
    largest = jnp.asarray(jnp.inf, tree.widest(lam))
    audit = first_audit(problem.audits, lam, opt) if problem.audits else None
    return OuterState(lam, opt, warm, zero, largest, zero, audit)


@weak_jit
def hyper_iterations(
    problem: OuterProblem,
    state: OuterState,
    contexts: Context,
    offset: Int[Array, ""],
    n: Int[Array, ""],
    patience: Int[Array, ""],
) -> tuple[OuterState, Records, Bool[Array, " 4"], Bool[Array, ""], Int[Array, ""]]:
    """Take up to n hyper-iterations; returns the records, what is not finite, and how many.

    Between the last two: whether h was zero anywhere where it may not be.

    `contexts`, from `offset` on, are those of an iterator, stacked twice. The loop stops early
    when the value has not improved for `patience` hyper-iterations.
    """
    pick = lambda i: jax.tree.map(lambda a: a[offset + i], contexts)
    step, (_, example, *_) = traced(lambda s, S: hyper_iteration(problem, s, S), state, pick(0))
    records = {name: jnp.zeros(MAX_STEPS, a.dtype) for name, a in example.items()}

    def unfinished(carry):
        i, state, _, bad, _ = carry
        return (i < n) & ~jnp.any(bad) & (state.waited < patience)

    def body(carry):
        i, state, records, _, blank = carry
        new, record, bad, now = step(state, pick(i))
        records = {name: a.at[i].set(record[name]) for name, a in records.items()}
        return i + new.tau - state.tau, new, records, bad, blank | now

    carry = (jnp.zeros((), jnp.int32), state, records, jnp.zeros(4, bool), jnp.asarray(False))
    i, state, records, bad, blank = lax.while_loop(unfinished, body, carry)
    state = constrained(state, problem.state_places)  # one program serves every call
    return state, *replicated((records, bad, blank, i), problem.mesh)


def hyper_iteration(
    problem: OuterProblem, state: OuterState, S: Context
) -> tuple[OuterState, Records, Bool[Array, " 4"], Bool[Array, ""]]:
    """One step of the outer optimizer; none, if something is not finite, or an audit must be first.

    Also whether h is zero where it may not be.
    """
    means, way = _means(problem, state, S)
    value = means.value.astype(state.smallest.dtype)
    before = _paused(problem, state, S, way)
    lam, opt = _update(problem, state, S, before, way.h, means.value)
    better = value < state.smallest
    new = OuterState(
        lam,
        opt,
        means.warm,
        state.tau + 1,
        jnp.where(better, value, state.smallest),
        jnp.where(better, 0, state.waited + 1),
        noted(state.audit, way.audit, before, means.h, value),
    )
    bad = jnp.append(means.bad, ~tree.all_finite(lam)) & ~way.again
    new = optax.tree.where(jnp.any(bad) | way.again, state._replace(audit=way.audit), new)
    record = {"value": means.value, "h_norm": tree.norm(way.h)} | means.report | way.record
    return new, record, bad, means.blank & ~way.again


def _update(
    problem: OuterProblem,
    state: OuterState,
    S: Context,
    before: tuple[Hyper, PyTree],
    h: Hyper,
    value: Array,
) -> tuple[Hyper, PyTree]:
    """One step of the outer optimizer along h."""
    lam, opt = before
    with jax.numpy_dtype_promotion("standard"):  # optax mixes dtypes on purpose
        updates, new = optax.with_extra_args_support(problem.optimizer).update(
            h, opt, lam, value=value, grad=h, value_fn=_value_function(problem, state, S)
        )
        lam = optax.apply_updates(lam, updates)
    return lam, optax.tree.cast_like(tree.strong(new), opt)


def _paused(
    problem: OuterProblem, state: OuterState, S: Context, way: Direction
) -> tuple[Hyper, PyTree]:
    """lam and the optimizer's memory, after a pause between two audits that was taken again."""
    now, last = (state.lam, state.opt), state.audit
    if last is None or way.audit is None or last.pause is None:
        return now
    step = functools.partial(_update, problem, state, S)
    again = functools.partial(retaken, step, last, last.pause, way.audit.delta)
    return lax.cond(way.retake, again, lambda: now)


def _means(problem: OuterProblem, state: OuterState, S: Context) -> tuple[Means, Direction]:
    """The mean over the batch, and the direction in which the run goes."""
    at = functools.partial(mean_estimate, problem, state.lam, state.warm, state.tau, S)
    if state.audit is None or problem.audits is None:
        means = at()
        never = jnp.asarray(False)
        return means, Direction(means.h, None, never, never, {})
    means = lax.cond(state.audit.due, lambda: at(audit=True), at)
    return means, audited_direction(problem.audits, state.audit, means, state.lam)


def _value_function(
    problem: OuterProblem, state: OuterState, S: Context
) -> Callable[[Hyper], Array]:
    """lam -> value, with h for its gradient: what the line searches of optax ask for.

    A traced program keeps the functions of its custom derivatives: they hold the problem weakly.
    """
    arrays, static = eqx.partition(problem, eqx.is_array)
    static = weakly(static)
    at = lambda lam: mean_estimate(eqx.combine(arrays, static()), lam, state.warm, state.tau, S)
    value = jax.custom_vjp(lambda lam: at(lam).value)
    corrects = state.audit is not None and problem.audits and problem.audits.corrects

    def forward(lam: Hyper) -> tuple[Array, Hyper]:
        means = at(lam)
        return means.value, optax.tree.add(means.h, state.audit.delta) if corrects else means.h  # pyright: ignore

    value.defvjp(forward, lambda h, c: (tree.scale(c, h),))
    return value
