"""The inner loop, there (Eq. 4) and back (Eq. 6), each in one place."""

from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jax import lax
from jax.extend.core import jaxpr_as_fun
from jaxtyping import Array, Float, Int, PyTree

from . import _tree as tree
from ._dynamics import AbstractDynamics
from ._types import Context, Hyper, Params, Policy, Product, State, Time


def forward(
    step: Callable[[State, Time], State],
    s: State,
    t: Time,
    n: int,
    keep: Callable[[State, State], PyTree] = lambda before, after: None,
    stride: int = 1,
) -> tuple[State, PyTree]:
    """n steps of Eq. 4 from s_t; the only forward loop of the library.

    Returns the last state, and what `keep` keeps of each step, stacked. The number of the step
    travels with the state: a table of them would make memory grow with their number.
    """

    def body(carry, _):
        s, t = carry
        after = step(s, t)
        return (after, t + stride), keep(s, after)

    (s, _), kept = scan(body, (s, jnp.asarray(t, jnp.int32)), None, n)
    return s, kept


def scan(body: Callable, carry: PyTree, xs: PyTree, n: int, reverse: bool = False):
    """`lax.scan`, also over no steps at all where `jax.disable_jit` is in force."""
    if n > 0:
        return lax.scan(body, carry, xs, length=n, reverse=reverse)
    x = jax.tree.map(lambda a: jax.ShapeDtypeStruct(a.shape[1:], a.dtype), xs)
    _, form = jax.eval_shape(body, carry, x)
    return carry, jax.tree.map(lambda a: jnp.zeros((0, *a.shape), a.dtype), form)


def traced(fun: Callable[..., Any], *args: PyTree) -> tuple[Callable[..., Any], Any]:
    """fun for arguments of these forms, traced once for all its uses, and what form it gives."""
    if jax.config.jax_disable_jit:  # pyright: ignore[reportAttributeAccessIssue]
        return fun, jax.eval_shape(fun, *args)
    closed, form = jax.make_jaxpr(fun, return_shape=True)(*args)
    run, treedef = jaxpr_as_fun(closed), jax.tree.structure(form)
    return lambda *args: treedef.unflatten(run(*jax.tree.leaves(args))), form


class Back(NamedTuple):
    """Where the way back stands: alpha_t, h_t and t of Eq. 6, and what a visitor gathers."""

    alpha: PyTree
    h: Hyper
    t: Time
    gathered: PyTree = None


Visit: TypeAlias = Callable[[Back, Hyper, Back], PyTree]
"""(where the way stood, B_t alpha_t, where it stands now) -> what is gathered now."""
Way: TypeAlias = Callable[[Back], Back]


def pass_by(before: Back, part: Hyper, after: Back) -> PyTree:
    """The visitor that gathers nothing."""
    del part, after
    return before.gathered


def back(product: Callable[[Time], Product], at: Back, visit: Visit = pass_by) -> Back:
    """One step of Eq. 6; `product(t)` is the vjp of the step that leaves s_t."""
    t = at.t - 1
    alpha, part = product(t)(at.alpha)  # alpha_{t-1} = A_t alpha_t
    now = Back(alpha, optax.tree.add(at.h, part), t)  # h_{t-1} = h_t + B_t alpha_t
    return now._replace(gathered=visit(at, part, now))


def back_over(
    product: Callable[[Time], Product], at: Back, n: Time, visit: Visit = pass_by
) -> Back:
    """n steps of Eq. 6, their number known or traced."""
    if isinstance(n, int) and n == 0:
        return at  # a loop over nothing is compiled, too
    return lax.fori_loop(0, n, lambda _, at: back(product, at, visit), _settled(at))


def unroll(xi: AbstractDynamics, lam: Hyper, S: Context, s: State, t: Time, n: int) -> State:
    """s_{t+n} from s_t, holding one state."""
    if n == 0:  # no step is traced
        return s
    return forward(lambda s, t: xi.advance(s, lam, S, t), s, t, n)[0]


def recorded(
    xi: AbstractDynamics, lam: Hyper, S: Context, s: State, t: Time, n: int
) -> tuple[State, State]:
    """s_{t+n} from s_t, and the n states before it, stacked."""
    return forward(lambda s, t: xi.advance(s, lam, S, t), s, t, n, keep=lambda s, _: s)


def solved(xi: AbstractDynamics, lam: Hyper, S: Context, T: int) -> State:
    """s_T from the start."""
    return unroll(xi, lam, S, xi.start(lam, S), 0, T)


def capture(
    xi: AbstractDynamics, lam: Hyper, S: Context, s: State, t: Time, n: int, times: Int[Array, " k"]
) -> tuple[State, Callable[[Time], State], Float[Array, " n"]]:
    """s_{t+n} from s_t, a function time -> s_time for the k given times, and |s_{j+1} - s_j|.

    The times are sorted, may be traced, and may repeat. A slot is overwritten in every
    step until its time has come, so no step asks a question: k states, whatever n is.
    """

    def step(carry, t):
        s, slots = carry
        i = jnp.searchsorted(times, t)  # past the last time: out of range, dropped
        slots = jax.tree.map(lambda b, a: b.at[i].set(a, mode="drop"), slots, s)
        return xi.advance(s, lam, S, t), slots

    distance = lambda a, b: tree.norm(optax.tree.sub(tree.inexact(b[0]), tree.inexact(a[0])))
    slots = jax.tree.map(lambda a: jnp.broadcast_to(a, (times.shape[0], *a.shape)), s)
    (s, slots), moves = forward(step, (s, slots), t, n, keep=distance)
    at = lambda time: jax.tree.map(lambda b: b[jnp.searchsorted(times, time)], slots)
    return s, at, moves


def there_and_back(
    xi: AbstractDynamics,
    lam: Hyper,
    S: Context,
    s: State,
    t: Time,
    n: int,
    policy: Policy | None = None,
    visit: Visit = pass_by,
) -> tuple[State, Way]:
    """n steps from s_t: s_{t+n}, and the way back over them. Holds n states.

    With a policy JAX differentiates the loop: a step keeps its iterate, and what the policy
    says. No step is visited then.
    """
    if n == 0:
        return s, _settled
    if policy is not None:
        return _by_policy(xi, lam, S, s, t, n, policy)
    s, history = recorded(xi, lam, S, s, t, n)

    def way(at: Back) -> Back:
        step = lambda at, s: (back(lambda t: xi.advance_vjp(s, lam, S, t), at, visit), None)
        return scan(step, _settled(at), history, n, reverse=True)[0]

    return s, way


def in_segments(
    xi: AbstractDynamics,
    lam: Hyper,
    S: Context,
    s: State,
    t: Time,
    n: int,
    lengths: tuple[int, ...],
    policy: Policy | None = None,
    visit: Visit = pass_by,
) -> tuple[State, Way, State]:
    """As `there_and_back`, recomputing a segment at a time; also the stacked starts of segments.

    The first of the lengths is that of a segment, the others are those of the segments in it, and
    so on. With lengths c, ..., e this holds n/c + ... + e states. The steps that do not fill a
    segment come first, as a short one.
    """
    if not lengths or n == 0:
        return *there_and_back(xi, lam, S, s, t, n, policy, visit), None
    c, *inner = min(lengths[0], n), *lengths[1:]
    segment = lambda s, t, n: in_segments(xi, lam, S, s, t, n, tuple(inner), policy, visit)
    short, first = n % c, s
    s = unroll(xi, lam, S, s, t, short)
    stretch = lambda s, t: unroll(xi, lam, S, s, t, c)
    s, starts = forward(stretch, s, t + short, n // c, keep=lambda s, _: s, stride=c)

    def way(at: Back) -> Back:
        again = lambda at, s: (segment(s, at.t - c, c)[1](at), None)
        at = scan(again, _settled(at), starts, n // c, reverse=True)[0]
        return segment(first, jnp.asarray(t, jnp.int32), short)[1](at)

    return s, way, starts


def _by_policy(xi, lam, S, s, t, n, policy) -> tuple[State, Way]:
    x, rest = eqx.partition(s, eqx.is_inexact_array)
    step = lambda s, lam, t: xi.advance(s, lam, S, t)
    step = jax.checkpoint(step, policy=policy, prevent_cse=False)

    def steps(x, lam):
        s, _ = forward(lambda s, t: step(s, lam, t), eqx.combine(x, rest), t, n)
        return tree.inexact(s), s

    _, pull, s = jax.vjp(steps, x, lam, has_aux=True)

    def way(at: Back) -> Back:
        alpha, part = pull(at.alpha)
        return at._replace(alpha=alpha, h=optax.tree.add(at.h, part), t=at.t - n)

    return s, way


def _settled(at: Back) -> Back:
    """With t as an array, which a loop carries."""
    return at._replace(t=jnp.asarray(at.t, jnp.int32))


def start_vjp(xi: AbstractDynamics, lam: Hyper, S: Context, alpha: PyTree) -> Hyper:
    """B_0 alpha, with B_0 = d_lam Xi_0."""
    return jax.vjp(lambda lam: tree.inexact(xi.start(lam, S)), lam)[1](alpha)[0]


def read_vjp(xi: AbstractDynamics, s: State) -> tuple[Params, Callable[[Params], Any]]:
    """w and the pullback of `read`: alpha in w to alpha_T in the state.

    Where w comes with integers (a `Stateful`), alpha has None in their places.
    """
    x, rest = eqx.partition(s, eqx.is_inexact_array)
    smooth = lambda x: tree.inexact(xi.read(eqx.combine(x, rest)))
    pull = jax.vjp(smooth, x)[1]
    return xi.read(s), lambda alpha: pull(alpha)[0]
