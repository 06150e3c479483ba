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
from .._compile import weak_jit, weakly
from .._types import Context, Hyper, Params
from .batch import OuterProblem, mean_estimate
from .devices import constrained, replicated

MAX_STEPS = 2048
"""The most hyper-iterations in one call: the length of its records."""

Records = dict[str, Array]


class OuterState(NamedTuple):
    """Everything that changes from one hyper-iteration to the next."""

    lam: Hyper
    opt: PyTree
    """The memory of the outer optimizer."""
    w: Params | None
    """For a warm start: w_T of each context of the batch, stacked."""
    tau: Int[Array, ""]
    """How many hyper-iterations have been taken."""
    smallest: Float[Array, ""]
    """The smallest value so far."""
    waited: Int[Array, ""]
    """Hyper-iterations since then."""


def first_state(problem: OuterProblem, lam: Hyper, w: Params | None) -> OuterState:
    with jax.numpy_dtype_promotion("standard"):
        opt = tree.strong(problem.optimizer.init(lam))
    zero = jnp.zeros((), jnp.int32)
    return OuterState(lam, opt, w, zero, jnp.asarray(jnp.inf, tree.widest(lam)), zero)


@weak_jit
def hyper_iterations(
    problem: OuterProblem,
    state: OuterState,
    contexts: Context,
    offset: Int[Array, ""],
    n: Int[Array, ""],
    patience: Int[Array, ""],
) -> tuple[OuterState, Records, Bool[Array, " 4"], Int[Array, ""]]:
    """Take up to n hyper-iterations; returns the records, what is not finite, and how many.

    `contexts`, from `offset` on, are those of an iterator, stacked twice. The loop stops early
    when the value has not improved for `patience` hyper-iterations.
    """
    pick = lambda i: jax.tree.map(lambda a: a[offset + i], contexts)
    _, example, _ = jax.eval_shape(lambda state: hyper_iteration(problem, state, pick(0)), state)
    records = {name: jnp.zeros(MAX_STEPS, a.dtype) for name, a in example.items()}

    def unfinished(carry):
        i, state, _, bad = carry
        return (i < n) & ~jnp.any(bad) & (state.waited < patience)

    def body(carry):
        i, state, records, _ = carry
        state, record, bad = hyper_iteration(problem, state, pick(i))
        records = {name: a.at[i].set(record[name]) for name, a in records.items()}
        return i + (~jnp.any(bad)).astype(i.dtype), state, records, bad

    carry = (jnp.zeros((), jnp.int32), state, records, jnp.zeros(4, bool))
    i, state, records, bad = lax.while_loop(unfinished, body, carry)
    state = constrained(state, problem.state_places)  # one program serves every call
    return state, *replicated((records, bad, i), problem.mesh)


def hyper_iteration(
    problem: OuterProblem, state: OuterState, S: Context
) -> tuple[OuterState, Records, Bool[Array, " 4"]]:
    """One step of the outer optimizer; if something is not finite, none."""
    means = mean_estimate(problem, state.lam, state.w, state.tau, S)
    value = means.value.astype(state.smallest.dtype)
    with jax.numpy_dtype_promotion("standard"):  # optax mixes dtypes on purpose
        updates, opt = optax.with_extra_args_support(problem.optimizer).update(
            means.h,
            state.opt,
            state.lam,
            value=means.value,
            grad=means.h,
            value_fn=_value_function(problem, state, S),
        )
        lam = optax.apply_updates(state.lam, updates)
    better = value < state.smallest
    new = OuterState(
        lam,
        optax.tree.cast_like(tree.strong(opt), state.opt),
        means.w,
        state.tau + 1,
        jnp.where(better, value, state.smallest),
        jnp.where(better, 0, state.waited + 1),
    )
    bad = jnp.append(means.bad, ~tree.all_finite(lam))
    new = jax.tree.map(lambda a, b: jnp.where(jnp.any(bad), a, b), state, new)
    record = {"value": means.value, "h_norm": tree.norm(means.h)} | means.report
    return new, record, bad


def _value_function(
    problem: OuterProblem, state: OuterState, S: Context
) -> Callable[[Hyper], Array]:
    """lam -> value, with h for its gradient: what the line searches of optax ask for.

    A traced program keeps the functions of its custom derivatives: they hold the problem weakly.
    """
    arrays, static = eqx.partition(problem, eqx.is_array)
    static = weakly(static)
    at = lambda lam: mean_estimate(eqx.combine(arrays, static()), lam, state.w, state.tau, S)
    value = jax.custom_vjp(lambda lam: at(lam).value)

    def forward(lam: Hyper) -> tuple[Array, Hyper]:
        means = at(lam)
        return means.value, means.h

    value.defvjp(forward, lambda h, c: (tree.scale(c, h),))
    return value
