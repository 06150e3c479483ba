"""Reverse-mode differentiation: full, truncated, checkpointed, or all of it at once."""

import equinox as eqx
import optax

from .._dynamics import AbstractDynamics
from .._errors import check
from .._loop import Back, in_segments, read_vjp, start_vjp, there_and_back, unroll
from .._types import Context, Hyper, Params, Policy, Pull
from .base import AbstractRule, Channel


class Reverse(AbstractRule):
    """Back-propagation through the inner loop (Eq. 6), or its last K steps (Eq. 8).

    It keeps iterates, no activations: each step is linearised again on the way back.
    In memory there are T states, K with truncation, and with segments of c steps only
    T/c + c (K/c + c).

    **Arguments:**

    - `K`: how many steps to go back; the result is exactly h_{T-K}, the last K terms
        and never B_0. Default: all T steps, and B_0.
    - `segment`: keep one iterate in `segment` and recompute the others, for about one
        more forward pass. The square root of the depth needs the least memory.
    - `policy`: what a step keeps in addition to its iterate, so that less is computed again: one of
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
            check.integer(self.K, "K", "give the number of last steps, or leave K out for all")
        if self.segment is not None:
            check.integer(self.segment, "segment", "give the steps in a segment")
        if self.policy is not None:
            check.function(self.policy, "policy", "one of jax.checkpoint_policies")

    def vjp(self, xi: AbstractDynamics, lam: Hyper, S: Context, T: int) -> tuple[Params, Pull]:
        K = T if self.K is None else self.K
        check.depth(self, K, T)
        s = unroll(xi, lam, S, xi.start(lam, S), 0, T - K)
        if self.segment is None:
            s, way = there_and_back(xi, lam, S, s, T - K, K, self.policy)
        else:
            s, way, _ = in_segments(xi, lam, S, s, T - K, K, min(self.segment, K), self.policy)
        w, pull_read = read_vjp(xi, s)

        def pull(alpha: Params):
            first = way(Back(pull_read(alpha), optax.tree.zeros_like(lam), T))
            if self.K is not None:
                return first.h, {}
            start = start_vjp(xi, lam, S, first.alpha)
            return optax.tree.add(first.h, start), {}  # h_{-1} = h_0 + B_0 alpha_0

        return w, pull

    def sees(self) -> Channel:
        every = Channel.START | Channel.STEP | Channel.EACH
        return every if self.K is None else Channel.STEP
