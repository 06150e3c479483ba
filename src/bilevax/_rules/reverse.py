"""Reverse-mode differentiation: full, truncated, checkpointed, or all of it at once."""

import equinox as eqx
import optax

from .._dynamics import AbstractDynamics
from .._errors import check, rules
from .._loop import Back, Way, in_segments, read_vjp, start_vjp, unroll
from .._types import AuditedPull, Context, Hyper, Params, Policy, Pull, State
from .base import AbstractRule, Channel
from .budget import plan


class Reverse(AbstractRule):
    """Back-propagation through the inner loop (Eq. 6), or its last K steps (Eq. 8).

    It keeps iterates, no activations: each step is linearised again on the way back.
    In memory there are T states, K with truncation, and with segments of c steps only
    T/c + c (K/c + c); with segments of c steps in segments of b, T/b + b/c + c.

    **Arguments:**

    - `K`: how many steps to go back; the result is exactly h_{T-K}, the last K terms
        and never B_0. Default: all T steps, and B_0.
    - `segment`: keep one iterate in `segment` and recompute the others, for about one
        more forward pass. The square root of the depth needs the least memory. A tuple makes
        segments of segments, the outermost first, for one more forward pass each: for T = 1000,
        `segment=(100, 10)` keeps 30 iterates.
    - `policy`: what a step keeps in addition to its iterate, so that less is computed again: one of
        `jax.checkpoint_policies`. `dots_saveable` keeps products, `everything_saveable` all of it,
        which is the fastest and takes the most memory. Default: nothing. With a policy JAX
        differentiates the whole loop in reverse mode, even if `Descent` is `symmetric`.
    - `memory`: bytes that the way back may keep, instead of a `segment` and a `policy` of yours.
        The rule chooses from shapes what fits and is likely to be fastest: it keeps large products
        of each step (with a `policy`), or iterates, or segments, as deep as it takes. Add to that
        the activations of one step.

    !!! example

        >>> import bilevax as bx
        >>> bx.Reverse(K=5)
        Reverse(K=5)

    ??? cite "Reference"

        Eq. 6 and 8, Table 1 of Shaban et al., AISTATS 2019.
    """

    K: int | None = eqx.field(default=None, static=True, converter=check.plain(int | None))
    segment: int | tuple[int, ...] | None = eqx.field(
        default=None, static=True, converter=check.plain(int | tuple[int, ...] | None)
    )
    policy: Policy | None = eqx.field(default=None, static=True)
    memory: float | None = eqx.field(default=None, static=True, converter=check.plain(float | None))

    def __check_init__(self):
        if self.K is not None:
            check.integer(self.K, "K", "give the number of last steps, or leave K out for all")
        if self.segment is not None:
            rules.segments(self.segment)
        if self.policy is not None:
            check.function(self.policy, "policy", "one of jax.checkpoint_policies")
        if self.memory is not None:
            check.positive(self.memory, "memory", "give the number of bytes, as in memory=8e9")
            rules.alone("memory", segment=self.segment, policy=self.policy)

    def vjp(self, xi: AbstractDynamics, lam: Hyper, S: Context, T: int) -> tuple[Params, Pull]:
        K = T if self.K is None else self.K
        rules.depth(self, K, T)
        s = unroll(xi, lam, S, xi.start(lam, S), 0, T - K)
        s, way = self._way(xi, lam, S, s, T - K, K)
        w, pull_read = read_vjp(xi, s)

        def pull(alpha: Params):
            first = way(Back(pull_read(alpha), optax.tree.zeros_like(lam), T))
            return (_to_start(xi, lam, S, first) if self.K is None else first.h), {}

        return w, pull

    def audited(
        self, exact: AbstractRule, xi: AbstractDynamics, lam: Hyper, S: Context, T: int
    ) -> tuple[Params, AuditedPull]:
        """One way back: h_{T-K} stands on it, and the exact rule goes on from there."""
        if self.K is None or not isinstance(exact, Reverse) or exact.K is not None:
            return super().audited(exact, xi, lam, S, T)
        n = T - self.K
        rules.depth(self, self.K, T)
        s, early = exact._way(xi, lam, S, xi.start(lam, S), 0, n)
        s, late = self._way(xi, lam, S, s, n, self.K)
        w, pull_read = read_vjp(xi, s)

        def pull(alpha: Params):
            at = late(Back(pull_read(alpha), optax.tree.zeros_like(lam), T))
            return at.h, {}, _to_start(xi, lam, S, early(at))

        return w, pull

    def _way(self, xi, lam, S, s, t: int, n: int) -> tuple[State, Way]:
        """n steps from s_t, and the way back over them."""
        if self.memory is not None and n > 0:
            lengths, policy = plan(self.memory, xi, lam, S, s, n)
        else:
            lengths = () if self.segment is None else rules.segments(self.segment)
            policy = self.policy
        return in_segments(xi, lam, S, s, t, n, lengths, policy)[:2]

    def sees(self) -> Channel:
        every = Channel.START | Channel.STEP | Channel.EACH
        return every if self.K is None else Channel.STEP


def _to_start(xi: AbstractDynamics, lam: Hyper, S: Context, at: Back) -> Hyper:
    """h_{-1} = h_0 + B_0 alpha_0."""
    return optax.tree.add(at.h, start_vjp(xi, lam, S, at.alpha))
