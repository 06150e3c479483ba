"""Reverse-mode differentiation: full, truncated, checkpointed, or all of it at once."""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import PyTree

from .. import _tree as tree
from .._dynamics import AbstractDynamics
from .._errors import check
from .._loop import read_vjp, record, step_vjp, unroll, unroll_vjp
from .._types import Context, Hyper, Params, Policy, Pull, State, Time
from .base import AbstractRule, Channel


class Reverse(AbstractRule):
    """Back-propagation through the inner loop (Eq. 6), or its last K steps (Eq. 8).

    Holds iterates, no activations: each step is linearised anew on the way back.
    In memory there are T states, K with truncation, and with segments of c steps only
    T/c + c (K/c + c).

    **Arguments:**

    - `K`: how many steps to go back; the result is exactly h_{T-K}, the last K terms
        and never B_0. Default: all T steps, and B_0.
    - `segment`: keep one iterate in `segment` and recompute the others, for about one
        more forward pass. The square root of the depth needs the least memory.
    - `policy`: what a step keeps beside its iterate, so that less is computed again: one of
        `jax.checkpoint_policies`. `dots_saveable` keeps products, `everything_saveable` all of it,
        which is the fastest and takes the most memory. Default: nothing.

    !!! example

        >>> import bilevax as bx
        >>> bx.Reverse(K=5)
        Reverse(K=5)

    ??? cite "Reference"

        Eq. 6 and 8, Table 1 of Shaban et al., AISTATS 2019.
    """

    K: int | None = eqx.field(default=None, static=True)
    segment: int | None = eqx.field(default=None, static=True)
    policy: Policy | None = eqx.field(default=None, static=True)

    def __check_init__(self):
        if self.K is not None:
            check.integer(self.K, "K", "use Reverse() for all steps")
        if self.segment is not None:
            check.integer(self.segment, "segment", "give the steps in a segment")
        if self.policy is not None:
            check.function(self.policy, "policy", "one of jax.checkpoint_policies")

    def vjp(self, xi: AbstractDynamics, lam: Hyper, S: Context, T: int) -> tuple[Params, Pull]:
        K = T if self.K is None else self.K
        check.depth(self, K, T)
        s = unroll(xi, lam, S, xi.start(lam, S), 0, T - K)
        if self.segment is None:
            s_T, back = forth(xi, lam, S, s, T - K, K, self.policy)
        else:
            c = min(self.segment, K)
            s_T, marks = _mark(xi, lam, S, s, T - K, K, c)
            back = lambda alpha, h: _replay(xi, lam, S, marks, T, K, c, self.policy, alpha, h)
        w, pull_read = read_vjp(xi, s_T)

        def pull(alpha: Params):
            alpha, h = back(pull_read(alpha), tree.zeros(lam))
            if self.K is None:
                h = tree.add(h, start_vjp(xi, lam, S, alpha))  # h_{-1} = h_0 + B_0 alpha_0
            return h, {}

        return w, pull

    def sees(self) -> Channel:
        return Channel.STEP if self.K is not None else Channel.START | Channel.STEP


def forth(
    xi: AbstractDynamics, lam: Hyper, S: Context, s: State, t: Time, n: int, policy: Policy | None
) -> tuple[State, Callable[[PyTree, Hyper], tuple[PyTree, Hyper]]]:
    """n steps from s_t: s_{t+n}, and the way back from (alpha_{t+n}, h_{t+n}) to (alpha_t, h_t)."""
    if policy is None:
        s, history = record(xi, lam, S, s, t, n)
        return s, lambda alpha, h: sweep(xi, lam, S, history, t + n, alpha, h)
    s, pull = unroll_vjp(xi, lam, S, s, t, n, policy)

    def back(alpha: PyTree, h: Hyper):
        alpha, B_alpha = pull(alpha)
        return alpha, tree.add(h, B_alpha)

    return s, back


def sweep(
    xi: AbstractDynamics,
    lam: Hyper,
    S: Context,
    history: State,
    t: Time,
    alpha: PyTree,
    h: Hyper,
) -> tuple[PyTree, Hyper]:
    """Eq. 6 over stored iterates ..., s_{t-2}, s_{t-1}, from (alpha_t, h_t) backwards."""

    def body(carry, s):
        alpha, h, t = carry
        alpha, B_alpha = step_vjp(xi, lam, S, s, t - 1)(alpha)  # alpha_{t-1} = A_t alpha_t
        return (alpha, tree.add(h, B_alpha), t - 1), None  # h_{t-1} = h_t + B_t alpha_t

    start = (alpha, h, jnp.asarray(t, jnp.int32))
    (alpha, h, _), _ = lax.scan(body, start, history, reverse=True)
    return alpha, h


def start_vjp(xi: AbstractDynamics, lam: Hyper, S: Context, alpha: PyTree) -> Hyper:
    """B_0 alpha, with B_0 = d_lam Xi_0."""
    return jax.vjp(lambda lam: tree.inexact(xi.start(lam, S)), lam)[1](alpha)[0]


def _mark(xi, lam, S, s, t: int, K: int, c: int):
    """K steps from s_t: s_{t+K}, and the states at which segments of c steps begin.

    The steps that do not fill a segment come first, as a short one of their own.
    """
    head = K % c
    first = s
    s = unroll(xi, lam, S, s, t, head)

    def body(carry, _):
        s, t = carry
        return (unroll(xi, lam, S, s, t, c), t + c), s

    begin = (s, jnp.asarray(t + head, jnp.int32))
    (s, _), marks = lax.scan(body, begin, None, length=K // c)
    return s, (first, marks)


def _replay(xi, lam, S, marks, T: int, K: int, c: int, policy: Policy | None, alpha, h):
    """Eq. 6 over the last K steps, recomputing one segment at a time."""
    first, marks = marks

    def segment(s, t, n, alpha, h):
        return forth(xi, lam, S, s, t, n, policy)[1](alpha, h)

    def body(carry, s):
        alpha, h, t = carry
        alpha, h = segment(s, t - c, c, alpha, h)
        return (alpha, h, t - c), None

    start = (alpha, h, jnp.asarray(T, jnp.int32))
    (alpha, h, _), _ = lax.scan(body, start, marks, reverse=True)
    return segment(first, jnp.asarray(T - K, jnp.int32), K % c, alpha, h)
