"""The mean hypergradient over a batch of contexts: together, in slices, over devices."""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jax import lax
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P
from jaxtyping import Array, Bool, Int, PyTree

from .. import _tree as tree
from .._dynamics import AbstractDynamics
from .._hypergradient import estimate
from .._rules.base import AbstractRule
from .._types import Context, Hyper, Objective, Params, Report


class Outer(eqx.Module):
    """Everything that stays the same over a run."""

    f: Objective
    xi: AbstractDynamics
    rule: AbstractRule
    optimizer: optax.GradientTransformationExtraArgs
    S: Context
    """The context of a deterministic problem."""
    draw: Any
    """key -> context; None where contexts come from outside, or S is the only one."""
    key: Any
    T: int = eqx.field(static=True)
    batch: int = eqx.field(static=True)
    at_once: int = eqx.field(static=True)
    """How many contexts of a device go through vmap together."""
    warm: bool = eqx.field(static=True)
    mesh: Mesh | None = eqx.field(static=True)
    places: tuple[Any, ...] | None = eqx.field(default=None, static=True)
    """Where the leaves of a `Run` live, if there is a mesh."""

    def placed(self, run: PyTree) -> PyTree:
        """The run, where it was at the beginning: one program serves every call."""
        if self.places is None:
            return run
        leaves, treedef = jax.tree.flatten(run)
        pairs = zip(leaves, self.places, strict=True)
        return treedef.unflatten([lax.with_sharding_constraint(a, p) for a, p in pairs])

    def everywhere(self, x: PyTree) -> PyTree:
        """x, whole on every device: each process reads it."""
        if self.mesh is None:
            return x
        return lax.with_sharding_constraint(x, NamedSharding(self.mesh, P()))

    def context(self, S: Any) -> Context:
        """The context itself, of a key, of what came from outside, or the only one."""
        if self.draw is not None:
            return self.draw(S)
        return self.S if S is None else S

    @property
    def spread(self) -> bool:
        """Whether the batch is divided among devices."""
        return self.mesh is not None and self.batch > 1


class Means(NamedTuple):
    """Means over the batch; w and bad are not means."""

    value: Array
    h: Hyper
    report: Report
    bad: Bool[Array, " 3"]
    """In any context: w_T, f or h is not finite."""
    w: Params | None


def average(outer: Outer, lam: Hyper, w: Params | None, tau: Int[Array, ""], S: Context) -> Means:
    """The mean of `estimate` over the batch of hyper-iteration tau.

    S holds the contexts of the batch, stacked, where they come from outside.
    """
    if outer.draw is not None:  # keys of its own, whatever came before: a resumed run draws alike
        S = jax.random.split(jax.random.fold_in(outer.key, tau), outer.batch)
    if outer.spread:
        sums, w = _spread(outer, lam, w, tau, S)
    elif outer.batch > 1:
        sums, w = _sum_up(outer, lam, w, tau, S)
    else:
        only = jax.tree.map(lambda a: a[0], (w, S))
        sums, w = _one(outer, lam, tau, *only)
        w = jax.tree.map(lambda a: a[None], w)
    value, h, report, bad = sums
    mean = lambda x: tree.scale(1 / outer.batch, x)
    return Means(mean(value), mean(h), mean(report), bad > 0, w)


def _spread(outer: Outer, lam, w, tau, S):
    """Every device takes its part of the batch; one sum over all of them."""
    arrays, rest = eqx.partition(outer, eqx.is_array)
    axes = outer.mesh.axis_names  # pyright: ignore

    def part(arrays, lam, w, tau, S):
        sums, w = _sum_up(eqx.combine(arrays, rest), lam, w, tau, S)
        return lax.psum(sums, axes), w

    ins, outs = (P(), P(), P(axes), P(), P(axes)), (P(), P(axes))
    run = jax.shard_map(part, mesh=outer.mesh, in_specs=ins, out_specs=outs, check_vma=False)
    return run(arrays, lam, w, tau, S)


def _sum_up(outer: Outer, lam, w, tau, S):
    """Sums over contexts (or keys) stacked along the first axis, `at_once` at a time."""
    n = jax.tree.leaves(S)[0].shape[0]
    width = min(outer.at_once, n)
    one = lambda x: _one(outer, lam, tau, *x)

    def together(x):
        if width == 1:  # no vmap: its conditionals would take both branches
            return jax.tree.map(lambda a: a[None], one(jax.tree.map(lambda a: a[0], x)))
        return jax.vmap(one)(x)

    def body(total, x):
        terms, w = together(x)
        return tree.add(total, jax.tree.map(lambda a: jnp.sum(a, axis=0, dtype=a.dtype), terms)), w

    slices = jax.tree.map(lambda a: a.reshape(n // width, width, *a.shape[1:]), (w, S))
    form, _ = jax.eval_shape(one, jax.tree.map(lambda a: a[0, 0], slices))
    total = jax.tree.map(lambda a: jnp.zeros(a.shape, a.dtype), form)
    total, w = lax.scan(body, total, slices)
    return total, jax.tree.map(lambda a: a.reshape(n, *a.shape[2:]), w)


def _one(outer: Outer, lam: Hyper, tau: Int[Array, ""], w: Params | None, S: Any):
    """((value, h, report, bad), w_T) of one context; w is where a warm start begins."""
    S = outer.context(S)
    xi = outer.xi
    if outer.warm:
        first = xi.read(xi.start(lam, S))
        xi = xi.at(jax.tree.map(lambda a, b: jnp.where(tau == 0, a, b), first, w))
    out = estimate(outer.f, xi, outer.rule, lam, S, outer.T)
    bad = jnp.stack([~tree.all_finite(x) for x in (out.w, out.value, out.h)])
    report = {name: jnp.asarray(a, tree.widest(lam)) for name, a in out.report.items()}
    return (out.value, out.h, report, bad.astype(jnp.int32)), out.w if outer.warm else None
