"""A hypergradient method is a derivative rule for the inner solve, shaped like `jax.vjp`.

With alpha_T = grad_w f(w_T, lam), Eq. 5 reads

    d_lam f = grad_lam f + sum_t B_t A_{t+1} ... A_T alpha_T

and the sum is a pullback of lam -> w_T. Rules differ in which of its terms they keep,
where they linearise, and in which order they multiply. Nothing else differs.
"""

import abc
import enum
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
from jaxtyping import PyTree

from .._dynamics import AbstractDynamics
from .._types import AuditedPull, Context, Hyper, Params, Pull, WarmPull


class Channel(enum.Flag):
    """The ways by which lam reaches w_T.

    !!! example

        >>> import bilevax as bx
        >>> from bilevax.extend import Channel
        >>> Channel.START in bx.Reverse().sees(), Channel.START in bx.Reverse(K=5).sees()
        (True, False)
    """

    START = enum.auto()
    """Through the initialisation Xi_0: the term with B_0."""
    STEP = enum.auto()
    """Through any step Xi_t, including the optimizer's own settings: B_t, t >= 1."""
    EACH = enum.auto()
    """Through each step, also where lam acts in some of them only, as lam[t] does."""
    OPTIMUM = enum.auto()
    """Through the optimum that the steps lead to, whatever leads there."""


class AbstractRule(eqx.Module):
    """The interface of a rule; a new method is a subclass with `vjp` and `sees`.

    !!! example

        >>> import bilevax as bx
        >>> class LastTwo(bx.extend.AbstractRule):
        ...     def vjp(self, xi, lam, S, T):
        ...         return bx.Reverse(K=2).vjp(xi, lam, S, T)
        ...     def sees(self):
        ...         return bx.extend.Channel.STEP
        >>> LastTwo()
        LastTwo()
    """

    @abc.abstractmethod
    def vjp(self, xi: AbstractDynamics, lam: Hyper, S: Context, T: int) -> tuple[Params, Pull]:
        """Run T inner steps; return w_T and the pullback of lam -> w_T.

        The pullback takes alpha, a cotangent of w_T, to (a cotangent of lam, report).
        """

    @abc.abstractmethod
    def sees(self) -> Channel:
        """Which of the ways by which lam reaches w_T the pullback follows."""

    def audited(
        self, exact: "AbstractRule", xi: AbstractDynamics, lam: Hyper, S: Context, T: int
    ) -> tuple[Params, AuditedPull]:
        """`vjp`, and that of an exact rule, at one lam.

        Override it if the two can share their work. The pullback takes alpha to (this rule's
        cotangent of lam, its report, the exact rule's cotangent).
        """
        w, pull = self.vjp(xi, lam, S, T)
        pull_exact = exact.vjp(xi, lam, S, T)[1]
        return w, lambda alpha: (*pull(alpha), pull_exact(alpha)[0])

    def first_memory(self, xi: AbstractDynamics, lam: Hyper, S: Context) -> PyTree:
        """What `warm_vjp` passes on, before the first call: zeros. Default: None, for nothing."""
        del xi, lam, S

    def warm_vjp(
        self, memory: PyTree, xi: AbstractDynamics, lam: Hyper, S: Context, T: int
    ) -> tuple[Params, WarmPull]:
        """`vjp` for a warm start, where a rule may begin with what it found at the last lam.

        The pullback takes alpha to (a cotangent of lam, (report, memory)).
        """
        w, pull = self.vjp(xi, lam, S, T)

        def warm(alpha: Params):
            lam_bar, report = pull(alpha)
            return lam_bar, (report, memory)

        return w, warm


def cold(
    rule: AbstractRule, xi: AbstractDynamics, lam: Hyper, S: Context, T: int
) -> tuple[Params, Pull]:
    """`vjp` of a rule that defines `warm_vjp`: with a memory of nothing yet."""
    w, pull = rule.warm_vjp(rule.first_memory(xi, lam, S), xi, lam, S, T)

    def forgetful(alpha: Params):
        lam_bar, (report, _) = pull(alpha)
        return lam_bar, report

    return w, forgetful


def apply(
    vjp: Callable[..., tuple[Params, Callable[[Params], Any]]],
    xi: AbstractDynamics,
    lam: Hyper,
    S: Context,
    T: int,
) -> tuple[Params, Callable[[Params], Any]]:
    """One of a rule's pullbacks for the algorithm's loop, and the pullback of what it computes once
    before.
    """
    mu, pull_mu = jax.vjp(lambda lam: xi.mu(lam, S), lam)
    w, pull_loop = vjp(xi.loop(), mu, S, T)

    def pull(alpha: Params):
        mu_bar, report, *exact_bar = pull_loop(alpha)
        return pull_mu(mu_bar)[0], report, *(pull_mu(bar)[0] for bar in exact_bar)

    return w, pull
