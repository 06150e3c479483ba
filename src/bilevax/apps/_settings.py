"""What is chosen from the data when the user does not choose: scales, step size, rule."""

import math
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from .._rules.base import AbstractRule
from .._rules.krylov.rule import Krylov
from .._rules.reverse import Reverse
from ..diagnostics import Diagnosis, diagnose
from ._model import ALL, Problem, smoothness, train

T = 100
"""Inner steps, as in the paper."""
DEPTHS = (1, 2, 5, 10, 20, 50)
ALIGNED = 0.7
"""The cosine with the whole hypergradient that is enough."""


class Scale(NamedTuple):
    """x -> (x - mean) * factor, for each column."""

    mean: np.ndarray
    factor: np.ndarray

    def __call__(self, x: np.ndarray) -> np.ndarray:
        return (x - self.mean) * self.factor


def standard(x: np.ndarray) -> Scale:
    """Columns of mean 0 and deviation 1, but no value beyond 10: a pixel that is hardly ever
    set, or a far outlier, must not outweigh the rest. Constant columns become 0."""
    mean = x.mean(0)
    width = np.maximum(x.std(0), 0.1 * np.ptp(x, axis=0))
    flat = width <= 1e-12 * np.maximum(np.abs(mean), np.finfo(float).tiny)
    return Scale(mean, np.where(flat, 0.0, 1 / np.where(flat, 1.0, width)))


def as_given(x: np.ndarray) -> Scale:
    return Scale(np.zeros(x.shape[1]), np.ones(x.shape[1]))


def unit_curvature(scale: Scale, x: np.ndarray, classes: int) -> Scale:
    """The same, times a number that makes the curvature of a linear model at w = 0 one.

    Then a step size of one and the paper's weight decay are right for every data set.
    """
    z = scale(x)
    n, d = z.shape
    gram = z.T @ z / n if d <= n else z @ z.T / n
    v = np.random.default_rng(0).normal(size=len(gram))
    for _ in range(30):
        v = gram @ (v / max(np.linalg.norm(v), np.finfo(float).tiny))
    beta = np.linalg.norm(v) / classes
    return scale._replace(factor=scale.factor / np.sqrt(beta) if beta > 0 else scale.factor)


def rate_of(p: Problem) -> float:
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


def look(p: Problem) -> Diagnosis:
    """One cheap diagnosis at the start: a few depths, no spectrum."""
    depths = [K for K in DEPTHS if K < p.T]
    return diagnose(p.f, p.xi, p.lam, p.S, T=p.T, depths=[*depths, p.T], lanczos=0)


def rule_of(d: Diagnosis, p: Problem) -> AbstractRule:
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


def horizon_of(n: int, size: int | None) -> int:
    """T; with minibatches at least twice through the rows."""
    return T if size is None else max(T, math.ceil(2 * n / size))


def seed_of(random_state: np.random.RandomState) -> int:
    return int(random_state.randint(np.iinfo(np.int32).max))
