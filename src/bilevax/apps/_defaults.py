"""What HyperCleaner chooses from the data when the user does not: horizon, step size, rule."""

import math

import jax.numpy as jnp

from .._rules.base import AbstractRule
from .._rules.krylov.rule import Krylov
from .._rules.reverse import Reverse
from ..diagnostics import Diagnosis, diagnose
from ._cleaning import ALL, Cleaning, smoothness, train

T = 100
"""Inner steps, as in the paper."""
DEPTHS = (1, 2, 5, 10, 20, 50)
ALIGNED = 0.7
"""The cosine with the whole hypergradient that is enough."""


def horizon_of(n: int, size: int | None) -> int:
    """T; with minibatches at least twice through the rows."""
    return T if size is None else max(T, math.ceil(2 * n / size))


def rate_of(p: Cleaning) -> float:
    """A step size with gamma beta about 1, at the start and where training with all rows ends."""
    lam = jnp.full_like(p.lam, ALL)
    start = p.xi.read(p.xi.start(lam, p.S))
    gamma = 1 / max(float(smoothness(p, start, lam)), 1e-8)
    for _ in range(10):
        w = train(p.at_rate(gamma), lam)
        beta = float(smoothness(p, w, lam))
        if math.isfinite(beta) and gamma * beta <= 1.5:
            return gamma
        gamma = min(gamma / 2, 1 / beta) if math.isfinite(beta) else gamma / 4
    raise ValueError("No inner step size keeps the model finite; give learning_rate, or scale X.")


def diagnosis_of(p: Cleaning) -> Diagnosis:
    """One cheap diagnosis at the start: a few depths, no spectrum."""
    depths = [K for K in DEPTHS if K < p.T]
    return diagnose(p.f, p.xi, p.lam, p.S, T=p.T, depths=[*depths, p.T], lanczos=0)


def rule_of(d: Diagnosis, p: Cleaning) -> AbstractRule:
    """The shortest truncation, from K = 5 on, that points the right way; else all terms.

    Nearer is not better: with few trusted rows the exact hypergradient fits lam to them, and
    finds fewer wrong labels than K = 5 does. With minibatches K steps back see K batches: there
    must be enough of them to see every row about once.
    """
    right = [int(K) for K, c in zip(d.depths, d.cosine, strict=True) if K >= 5 and c >= ALIGNED]
    K = min(right, default=p.T)
    if p.size is not None:
        return Reverse(K=min(p.T, max(K, math.ceil(p.lam.shape[0] / p.size))))
    return Reverse(K=K) if K <= 20 or p.T <= 20 else Krylov(2, 4)
