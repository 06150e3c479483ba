"""The mean hypergradient over a batch of contexts: together, in slices, over devices."""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jax import lax
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P
from jaxtyping import Array, Bool, Int

from .. import _tree as tree
from .._dynamics import AbstractDynamics
from .._hypergradient import estimate
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


class Means(NamedTuple):
    """Means over the batch; w, bad and blank are not means."""

    value: Array
    h: Hyper
    report: Report
    bad: Bool[Array, " 3"]
    """In any context: w_T, f or h is not finite; in an audit, the exact h."""
    blank: Bool[Array, ""]
    """In all contexts: the rule's h is zero where it may not be."""
    w: Params | None
    exact: Hyper
    """The exact h, in an audit; else zero."""


def mean_estimate(
    problem: OuterProblem,
    lam: Hyper,
    w: Params | None,
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
        sums, w = _sum_over_devices(problem, lam, w, tau, S, audit)
    elif problem.batch > 1:
        sums, w = _sum(problem, lam, w, tau, S, audit)
    else:
        only = jax.tree.map(lambda a: a[0], (w, S))
        sums, w = _term(problem, lam, tau, only, audit)
        w = jax.tree.map(lambda a: a[None], w)
    value, h, report, bad, exact = sums
    mean = lambda x: tree.scale(1 / problem.batch, x)
    return Means(
        mean(value), mean(h), mean(report), bad[:3] > 0, bad[3] == problem.batch, w, mean(exact)
    )


def _sum_over_devices(problem: OuterProblem, lam, w, tau, S, audit: bool):
    """Every device takes its part of the batch; one sum over all of them."""
    arrays, rest = eqx.partition(problem, eqx.is_array)
    axes = problem.mesh.axis_names  # pyright: ignore

    def part(arrays, lam, w, tau, S):
        sums, w = _sum(eqx.combine(arrays, rest), lam, w, tau, S, audit)
        return lax.psum(sums, axes), w

    ins, outs = (P(), P(), P(axes), P(), P(axes)), (P(), P(axes))
    run = jax.shard_map(part, mesh=problem.mesh, in_specs=ins, out_specs=outs, check_vma=False)
    return run(arrays, lam, w, tau, S)


def _sum(problem: OuterProblem, lam, w, tau, S, audit: bool):
    """Sums over contexts (or keys) stacked along the first axis, `at_once` at a time."""
    n = jax.tree.leaves(S)[0].shape[0]
    width = min(problem.at_once, n)
    one = lambda x: _term(problem, lam, tau, x, audit)

    def together(x):
        if width == 1:  # no vmap: its conditionals would take both branches
            return jax.tree.map(lambda a: a[None], one(jax.tree.map(lambda a: a[0], x)))
        return jax.vmap(one)(x)

    def body(total, x):
        terms, w = together(x)
        terms = jax.tree.map(lambda a: jnp.sum(a, axis=0, dtype=a.dtype), terms)
        return optax.tree.add(total, terms), w

    slices = jax.tree.map(lambda a: a.reshape(n // width, width, *a.shape[1:]), (w, S))
    form, _ = jax.eval_shape(one, jax.tree.map(lambda a: a[0, 0], slices))
    total = jax.tree.map(lambda a: jnp.zeros(a.shape, a.dtype), form)
    total, w = lax.scan(body, total, slices)
    return total, jax.tree.map(lambda a: a.reshape(n, *a.shape[2:]), w)


def _term(
    problem: OuterProblem,
    lam: Hyper,
    tau: Int[Array, ""],
    given: tuple[Params | None, Any],
    audit: bool,
):
    """((value, h, report, bad, exact h), w_T) of one context S, given with w: where a warm start
    begins.
    """
    w, S = given
    if problem.draw is not None:  # S is a key
        S = problem.draw(S)
    elif S is None:
        S = problem.S
    xi = problem.xi
    if problem.warm_start:
        first = xi.read(xi.start(lam, S))
        xi = xi.at(jax.tree.map(lambda a, b: jnp.where(tau == 0, a, b), first, w))
    exact_rule = problem.audits.rule if audit and problem.audits else None
    of = problem.f, xi, problem.rule, lam, S, problem.T
    out, bad, exact = estimate(*of, exact=exact_rule)
    exact = optax.tree.zeros_like(lam) if exact is None else exact
    report = {name: jnp.asarray(a, tree.widest(lam)) for name, a in out.report.items()}
    w = out.w if problem.warm_start else None
    return (out.value, out.h, report, bad.astype(jnp.int32), exact), w
