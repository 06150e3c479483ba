"""The mean hypergradient over a batch of contexts: together, in slices, over devices."""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jax import lax
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P
from jaxtyping import Array, Bool, Int, PyTree

from .. import _tree as tree
from .._dynamics import AbstractDynamics
from .._hypergradient import estimate
from .._loop import traced
from .._rules.base import AbstractRule
from .._types import Context, Hyper, Objective, Params, Report
from .audits import Audits


class OuterProblem(eqx.Module):
    """Everything that stays the same over a run."""

    f: Objective
    xi: AbstractDynamics
    rule: AbstractRule
    optimizer: optax.GradientTransformation
    S: Context
    """The context of a deterministic problem."""
    draw: Any
    """key -> context; None if contexts come from an iterator, or if S is the only one."""
    key: Any
    T: int = eqx.field(static=True)
    batch: int = eqx.field(static=True)
    at_once: int = eqx.field(static=True)
    """How many contexts of a device go through vmap together."""
    warm_start: bool = eqx.field(static=True)
    audits: Audits | None
    """When and how the rule is compared with an exact one."""
    mesh: Mesh | None = eqx.field(static=True)
    state_places: tuple[Any, ...] | None = eqx.field(default=None, static=True)
    """Where the leaves of an `OuterState` live, if there is a mesh."""

    @property
    def divides_batch(self) -> bool:
        """Whether the devices share the batch."""
        return self.mesh is not None and self.batch > 1


class Warm(NamedTuple):
    """What a warm start begins with."""

    w: Params
    """w_T of the last hyper-iteration."""
    memory: PyTree
    """What the rule found there, if it can use it again."""


class Means(NamedTuple):
    """Means over the batch; warm, bad and blank are not means."""

    value: Array
    h: Hyper
    report: Report
    bad: Bool[Array, " 3"]
    """In any context: w_T, f or h is not finite; in an audit, the exact h."""
    blank: Bool[Array, ""]
    """In all contexts: the rule's h is zero where it may not be."""
    warm: Warm | None
    exact: Hyper
    """The exact h, in an audit; else zero."""


def mean_estimate(
    problem: OuterProblem,
    lam: Hyper,
    warm: Warm | None,
    tau: Int[Array, ""],
    S: Context,
    audit: bool = False,
) -> Means:
    """The mean of `estimate` over the batch of hyper-iteration tau, in an audit with the exact h.

    S holds the contexts of the batch, stacked, if they come from an iterator.
    """
    if problem.draw is not None:  # keys depend on tau alone, so a resumed run draws the same
        S = jax.random.split(jax.random.fold_in(problem.key, tau), problem.batch)
    if problem.divides_batch:
        sums, warm = _sum_over_devices(problem, lam, warm, tau, S, audit)
    elif problem.batch > 1:
        sums, warm = _sum(problem, lam, warm, tau, S, audit)
    else:
        only = jax.tree.map(lambda a: a[0], (warm, S))
        sums, warm = _term(problem, lam, tau, only, audit)
        warm = jax.tree.map(lambda a: a[None], warm)
    value, h, report, bad, exact = sums
    mean = lambda x: tree.scale(1 / problem.batch, x)
    bad, blank = bad[:3] > 0, bad[3] == problem.batch
    return Means(mean(value), mean(h), mean(report), bad, blank, warm, mean(exact))


def first_warm(problem: OuterProblem, lam: Hyper, S: Context) -> Warm:
    """Of one context, before the first hyper-iteration."""
    w = problem.xi.read(problem.xi.start(lam, S))
    xi = problem.xi.at(w)
    return Warm(w, problem.rule.first_memory(xi.loop(), xi.mu(lam, S), S))


def _sum_over_devices(problem: OuterProblem, lam, warm, tau, S, audit: bool):
    """Every device takes its part of the batch; one sum over all of them."""
    arrays, rest = eqx.partition(problem, eqx.is_array)
    axes = problem.mesh.axis_names  # pyright: ignore

    def part(arrays, lam, warm, tau, S):
        sums, warm = _sum(eqx.combine(arrays, rest), lam, warm, tau, S, audit)
        return lax.psum(sums, axes), warm

    ins, outs = (P(), P(), P(axes), P(), P(axes)), (P(), P(axes))
    run = jax.shard_map(part, mesh=problem.mesh, in_specs=ins, out_specs=outs, check_vma=False)
    return run(arrays, lam, warm, tau, S)


def _sum(problem: OuterProblem, lam, warm, tau, S, audit: bool):
    """Sums over contexts (or keys) stacked along the first axis, `at_once` at a time."""
    n = jax.tree.leaves(S)[0].shape[0]
    width = min(problem.at_once, n)
    slices = jax.tree.map(lambda a: a.reshape(n // width, width, *a.shape[1:]), (warm, S))
    first = jax.tree.map(lambda a: a[0, 0], slices)
    one, (form, _) = traced(lambda x: _term(problem, lam, tau, x, audit), first)

    def together(x):
        if width == 1:  # no vmap: its conditionals would take both branches
            return jax.tree.map(lambda a: a[None], one(jax.tree.map(lambda a: a[0], x)))
        return jax.vmap(one)(x)

    def body(total, x):
        terms, warm = together(x)
        terms = jax.tree.map(lambda a: jnp.sum(a, axis=0, dtype=a.dtype), terms)
        return optax.tree.add(total, terms), warm

    total = jax.tree.map(lambda a: jnp.zeros(a.shape, a.dtype), form)
    total, warm = lax.scan(body, total, slices)
    return total, jax.tree.map(lambda a: a.reshape(n, *a.shape[2:]), warm)


def _term(
    problem: OuterProblem,
    lam: Hyper,
    tau: Int[Array, ""],
    given: tuple[Warm | None, Any],
    audit: bool,
):
    """((value, h, report, bad, exact h), warm) of one context S, given with what it begins with."""
    warm, S = given
    if problem.draw is not None:  # S is a key
        S = problem.draw(S)
    elif S is None:
        S = problem.S
    xi, memory = problem.xi, None
    if warm is not None:
        first = xi.read(xi.start(lam, S))
        xi = xi.at(jax.tree.map(lambda a, b: jnp.where(tau == 0, a, b), first, warm.w))
        memory = warm.memory
    exact_rule = problem.audits.rule if audit and problem.audits else None
    of = problem.f, xi, problem.rule, lam, S, problem.T
    out, bad, exact, memory = estimate(*of, exact=exact_rule, memory=memory)
    exact = optax.tree.zeros_like(lam) if exact is None else exact
    report = {name: jnp.asarray(a, tree.widest(lam)) for name, a in out.report.items()}
    warm = None if warm is None else Warm(out.w, memory)
    return (out.value, out.h, report, bad.astype(jnp.int32), exact), warm
