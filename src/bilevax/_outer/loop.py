"""Many hyper-iterations in one device call (Eq. 1, or Eq. 2 with sampled contexts).

    lam_{tau+1} = lam_tau + update( mean over contexts of h(lam_tau, S) )

One program is compiled for a run, with the number of hyper-iterations as an argument: how
the run is cut into calls changes nothing in the numbers.
"""

from collections.abc import Callable
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jax import lax
from jaxtyping import Array, Bool, Float, Int, PyTree

from .. import _tree as tree
from .._types import Context, Hyper, Params
from .average import Means, Outer, average

MOST = 2048
"""The most hyper-iterations in one call: the length of its records."""

Records = dict[str, Array]


class Run(NamedTuple):
    """Everything that changes from one hyper-iteration to the next."""

    lam: Hyper
    opt: PyTree
    """The outer optimizer's memory."""
    w: Params | None
    """For a warm start: w_T of each context of the batch, stacked."""
    tau: Int[Array, ""]
    """How many hyper-iterations have been taken."""
    best: Float[Array, ""]
    """The smallest value so far."""
    waited: Int[Array, ""]
    """Hyper-iterations since then."""


class Turn(NamedTuple):
    """What one device call is to do."""

    outer: Outer
    contexts: Context
    """Contexts of several hyper-iterations, stacked twice; None if they are drawn or fixed."""
    offset: Int[Array, ""]
    """Which of them comes first."""
    n: Int[Array, ""]
    """How many hyper-iterations to take."""
    patience: Int[Array, ""]
    """Stop when the value has not improved for so many."""


def begin(outer: Outer, lam: Hyper, w: Params | None) -> Run:
    with jax.numpy_dtype_promotion("standard"):
        opt = tree.strong(outer.optimizer.init(lam))
    none = jnp.zeros((), jnp.int32)
    return Run(lam, opt, w, none, jnp.asarray(jnp.inf, tree.widest(lam)), none)


@eqx.filter_jit(donate="all-except-first")
def advance(turn: Turn, run: Run) -> tuple[Run, Records, Bool[Array, " 4"], Int[Array, ""]]:
    """Take up to n hyper-iterations; returns the records, what went wrong, and how many."""
    step = lambda run, S: _hyper_iteration(turn.outer, run, S)
    pick = lambda i: jax.tree.map(lambda a: a[turn.offset + i], turn.contexts)
    _, example, _ = jax.eval_shape(lambda run: step(run, pick(0)), run)
    records = {name: jnp.zeros(MOST, a.dtype) for name, a in example.items()}

    def go_on(carry):
        i, run, _, bad = carry
        return (i < turn.n) & ~jnp.any(bad) & (run.waited < turn.patience)

    def body(carry):
        i, run, records, _ = carry
        run, record, bad = step(run, pick(i))
        records = {name: a.at[i].set(record[name]) for name, a in records.items()}
        return i + (~jnp.any(bad)).astype(i.dtype), run, records, bad

    carry = (jnp.zeros((), jnp.int32), run, records, jnp.zeros(4, bool))
    i, run, records, bad = lax.while_loop(go_on, body, carry)
    return turn.outer.placed(run), *turn.outer.everywhere((records, bad, i))


def _hyper_iteration(outer: Outer, run: Run, S: Context) -> tuple[Run, Records, Bool[Array, " 4"]]:
    """One step of the outer optimizer; where something is not finite, none."""
    means = average(outer, run.lam, run.w, run.tau, S)
    value = means.value.astype(run.best.dtype)
    with jax.numpy_dtype_promotion("standard"):  # optax mixes dtypes on purpose
        updates, opt = outer.optimizer.update(
            means.h,
            run.opt,
            run.lam,
            value=means.value,
            grad=means.h,
            value_fn=_line(outer, run, S),
        )
        lam = optax.apply_updates(run.lam, updates)
    better = value < run.best
    best, waited = jnp.where(better, value, run.best), jnp.where(better, 0, run.waited + 1)
    new = Run(lam, tree.cast_like(tree.strong(opt), run.opt), means.w, run.tau + 1, best, waited)
    bad = jnp.append(means.bad, ~tree.all_finite(lam))
    new = jax.tree.map(lambda a, b: jnp.where(jnp.any(bad), a, b), run, new)
    record = {"value": means.value, "h_norm": tree.norm(means.h)} | means.report
    return new, record, bad


def _line(outer: Outer, run: Run, S: Context) -> Callable[[Hyper], Array]:
    """lam -> value, with h for its gradient: what optax's line searches ask for."""
    at = lambda lam: average(outer, lam, run.w, run.tau, S)
    value = jax.custom_vjp(lambda lam: at(lam).value)

    def forward(lam: Hyper) -> tuple[Array, Hyper]:
        means: Means = at(lam)
        return means.value, means.h

    value.defvjp(forward, lambda h, c: (tree.scale(c, h),))
    return value
