"""Columns brought to a common scale."""

from typing import NamedTuple

import numpy as np


class Scale(NamedTuple):
    """x -> (x - mean) * factor, for each column."""

    mean: np.ndarray
    factor: np.ndarray

    def __call__(self, x: np.ndarray) -> np.ndarray:
        return (x - self.mean) * self.factor


def as_given(x: np.ndarray) -> Scale:
    return Scale(np.zeros(x.shape[1]), np.ones(x.shape[1]))


def standard(x: np.ndarray) -> Scale:
    """Columns of mean 0 and deviation 1, but no value beyond 10: a pixel that is hardly ever
    set, or a far outlier, must not outweigh the rest. Constant columns become 0."""
    mean = x.mean(0)
    width = np.maximum(x.std(0), 0.1 * np.ptp(x, axis=0))
    flat = width <= 1e-12 * np.maximum(np.abs(mean), np.finfo(float).tiny)
    return Scale(mean, np.where(flat, 0.0, 1 / np.where(flat, 1.0, width)))


def unit_curvature(x: np.ndarray, classes: int) -> Scale:
    """`standard`, times a number that makes the curvature of a linear model at w = 0 one.

    Then a step size of one and the paper's weight decay are right for every data set.
    """
    scale = standard(x)
    z = scale(x)
    n, d = z.shape
    gram = z.T @ z / n if d <= n else z @ z.T / n
    v = np.random.default_rng(0).normal(size=len(gram))
    for _ in range(30):
        v = gram @ (v / max(np.linalg.norm(v), np.finfo(float).tiny))
    beta = np.linalg.norm(v) / classes
    return scale._replace(factor=scale.factor / np.sqrt(beta) if beta > 0 else scale.factor)


def with_ones(z: np.ndarray) -> np.ndarray:
    """Rows with a last feature of one, whose weight is the bias."""
    return np.pad(z, ((0, 0), (0, 1)), constant_values=1.0)
