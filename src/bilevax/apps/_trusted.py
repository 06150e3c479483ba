"""Which rows are trusted: a mask over the rows of X, other rows, or none."""

import warnings
from typing import Any, NamedTuple

import numpy as np
from sklearn.utils.validation import column_or_1d

FAR, WIDE, ENOUGH = 3.0, 5.0, 10
"""Trusted rows are on another scale if, for half of the columns, their means are so many deviations
of X apart, or their deviations so many times larger or smaller; of so many rows or more."""


class Sets(NamedTuple):
    """The rows to weigh, as a mask over X, and the trusted rows with their labels."""

    noisy: np.ndarray
    x: np.ndarray
    y: np.ndarray


class ScaleWarning(UserWarning):
    """Trusted rows look as if they had not been transformed as the other rows were.

    !!! example

        >>> from bilevax.apps import ScaleWarning
        >>> issubclass(ScaleWarning, UserWarning)
        True
    """


class NoTrustedRowsWarning(UserWarning):
    """`HyperCleaner` was given no trusted rows, and had to believe the labels that it was given.

    !!! example

        >>> from bilevax.apps import NoTrustedRowsWarning
        >>> issubclass(NoTrustedRowsWarning, UserWarning)
        True
    """


def mask_of(trusted: Any, n: int) -> np.ndarray:
    """A mask over n rows, as it was given."""
    mask = column_or_1d(trusted)
    whole = mask.dtype == bool or np.isin(mask, (0, 1)).all()
    if len(mask) != n or not whole:
        raise ValueError(
            f"trusted must be a mask with True or False for each of the {n} rows, got "
            f"{mask.dtype} of length {len(mask)}."
        )
    mask = mask.astype(bool)
    if mask.all():
        raise ValueError(
            "trusted marks all rows, so that none is left to clean; fit any classifier."
        )
    return mask


def judged(trusted: Any, n: int) -> np.ndarray:
    """The rows to judge by."""
    mask = np.asarray(trusted).astype(bool)
    if mask.shape != (n,) or not mask.any():
        raise ValueError(
            f"trusted must mark at least one of the {n} rows to judge by, got {mask.sum()} of "
            f"{mask.size}; shuffle the rows before they are divided (shuffle=True of KFold and "
            "others), so that each part has some."
        )
    return mask


def warn_of_scales(x: np.ndarray, other: np.ndarray) -> None:
    """In a Pipeline, the steps before do not transform X_trusted of `fit`."""
    width, theirs = x.std(0), other.std(0)
    use = (width > 0) & (theirs > 0)  # a word that no trusted row has says nothing of scales
    if len(other) < ENOUGH or not use.any():
        return
    shift = np.median(np.abs(other.mean(0) - x.mean(0))[use] / width[use])
    ratio = np.median(theirs[use] / width[use])
    if shift > FAR or not 1 / WIDE < ratio < WIDE:
        warnings.warn(
            f"X_trusted is on another scale than X (its columns are {shift:.1f} deviations of X "
            f"away, and {ratio:.2g} times as wide, in the median): the steps before this one "
            "in a Pipeline do not transform it; put its rows into X and pass trusted=mask to fit.",
            ScaleWarning,
            stacklevel=4,
        )


def warn_of_none() -> None:
    warnings.warn(
        "no trusted rows were given, so a classifier of all rows judges the labels that it learned "
        "from: pass trusted=mask, or X_trusted and y_trusted, for rows whose labels you have "
        "checked.",
        NoTrustedRowsWarning,
        stacklevel=4,
    )
