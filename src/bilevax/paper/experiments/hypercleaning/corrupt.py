"""Classification data with wrong labels, as section 4.2.1 makes them."""

from typing import NamedTuple

import numpy as np

from .._balanced import balanced


class Corrupted(NamedTuple):
    """Examples with the constant input of the bias, in three parts."""

    x: np.ndarray
    y: np.ndarray
    """Labels of the training set, of which some are wrong."""
    wrong: np.ndarray
    """Which ones: those that differ from the truth, not all that were redrawn."""
    x_val: np.ndarray
    y_val: np.ndarray
    x_test: np.ndarray
    y_test: np.ndarray


def corrupt(
    x: np.ndarray, y: np.ndarray, train: int, validation: int, noise: float, seed: int
) -> Corrupted:
    """Class-balanced training and validation sets, the rest for testing.

    With probability `noise` a training label is replaced by a uniformly random one.
    """
    rng = np.random.default_rng(seed)
    first, second, rest = balanced(y, (train, validation), rng)
    classes = int(y.max()) + 1
    drawn = rng.random(train) < noise
    given = np.where(drawn, rng.integers(classes, size=train), y[first])
    x = np.concatenate([x, np.ones((len(x), 1), x.dtype)], axis=1)
    return Corrupted(x[first], given, given != y[first], x[second], y[second], x[rest], y[rest])
