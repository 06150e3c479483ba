"""What the estimators ask of their settings, rows, labels and images, each in one sentence."""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array
from scipy import sparse
from sklearn.utils import check_random_state

from .._errors import check

SIDES = (16, 31)
"""Four times halved, a side of these leaves one pixel."""


def dense(x: Any, name: str) -> None:
    if sparse.issparse(x):
        raise TypeError(f"{name} is sparse, which is not supported; give {name}.toarray().")


def finite(x: np.ndarray, name: str) -> None:
    bad = np.argwhere(~np.isfinite(x))
    if len(bad):
        row, column = (int(i) for i in bad[0])
        what = "NaN" if np.isnan(x[row, column]) else "inf"
        raise ValueError(
            f"{name} holds {what} (row {row}, column {column}); fill or leave out such rows."
        )


def one_of(x: Any, y: Any) -> None:
    if x is not None or y is not None:
        raise ValueError(
            "trusted is a mask over the rows of X, X_trusted and y_trusted are further rows; give "
            "one of the two."
        )


def classes(found: np.ndarray) -> None:
    if len(found) < 2:
        raise ValueError(
            f"y holds {len(found)} class, {_some(found)}; a classifier needs at least two classes."
        )


def codes_of_each(y: np.ndarray, known: np.ndarray) -> np.ndarray:
    """Trusted labels as numbers of classes; every class has some."""
    out = codes_of(y, known, "y_trusted")
    without = known[np.bincount(out, minlength=len(known)) == 0]
    if len(without):
        raise ValueError(
            f"y_trusted has no rows of class {_some(without)}; give at least one of each class."
        )
    return out


def codes_of(y: np.ndarray, known: np.ndarray, name: str) -> np.ndarray:
    """Labels as numbers of classes."""
    code = {label: i for i, label in enumerate(known.tolist())}
    strange = sorted({repr(label) for label in y.tolist() if label not in code})
    if strange:
        raise ValueError(
            f"{name} holds {_some(strange)}, which y does not; its classes are {_some(known)}."
        )
    return np.asarray([code[label] for label in y.tolist()], np.int32)


def same_features(x: np.ndarray, other: np.ndarray, name: str = "trusted") -> None:
    if x.shape[1] != other.shape[1]:
        raise ValueError(
            f"X_{name} has {other.shape[1]} features, X has {x.shape[1]}; give the same columns."
        )


def as_long(x: np.ndarray, y: np.ndarray, name: str = "trusted") -> None:
    if len(x) != len(y):
        raise ValueError(
            f"X_{name} has {len(x)} rows and y_{name} {len(y)}; give a label for each row."
        )


def both_given(x: Any, y: Any, name: str) -> bool:
    """Whether there is such a set; half of one is refused."""
    if (x is None) != (y is None):
        missing, there = ("X", "y") if x is None else ("y", "X")
        raise ValueError(f"{missing}_{name} must be given with {there}_{name}, or neither of them.")
    return x is not None


def some_held_out(rows: np.ndarray) -> None:
    if not len(rows):
        raise ValueError(
            "y has no class with two rows, so that none can be held out; give X_val and y_val."
        )


def integer(value: Any, name: str) -> int:
    return check.integer(value, name, "give a positive integer")


def number(value: Any, name: str, *, zero: bool = False) -> float:
    """A finite number above zero, or zero where that is allowed."""
    try:
        out = float(value)
    except (TypeError, ValueError):
        out = np.nan
    if not np.isfinite(out) or out < 0 or (out == 0 and not zero):
        raise ValueError(f"{name} must be a number {'from' if zero else 'above'} 0, got {value!r}.")
    return out


def key(random_state: Any) -> Array:
    """A key of JAX, from what scikit-learn accepts as a random state."""
    seed = check_random_state(random_state).randint(np.iinfo(np.int32).max)
    return jax.random.key(int(seed))


def model(given: Any) -> tuple[Any, Any]:
    """(w, apply) as they were given."""
    if not isinstance(given, tuple) or len(given) != 2 or not callable(given[1]):
        raise ValueError(
            f"model must be (w, apply), initial parameters and a function (w, x) -> logits, got "
            f"{type(given).__name__}."
        )
    return given


def logits(shape: tuple[int, ...], rows: int, classes: int) -> None:
    if shape != (rows, classes):
        raise ValueError(
            f"model's apply gives logits of shape {shape} for {rows} rows and {classes} classes; "
            f"it must give {(rows, classes)}."
        )


def task_shape(tasks: Any, key: Any) -> tuple[int, int]:
    """Number of classes and side of the images of a task."""
    if not callable(tasks):
        raise TypeError(
            f"tasks must be a function key -> task, as TaskSampler(images) is, got "
            f"{type(tasks).__name__}."
        )
    task: Any = tasks(key)
    shape = np.shape(task.x)
    if len(shape) != 3 or shape[1] != shape[2] or not SIDES[0] <= shape[1] <= SIDES[1]:
        raise ValueError(
            f"tasks must give images x (n, side, side) with a side of {SIDES[0]} to {SIDES[1]}, "
            f"got shape {shape}."
        )
    return int(jnp.max(task.y)) + 1, shape[1]


def images(X: Any, name: str, size: int) -> np.ndarray:
    """Images from 0 to 1."""
    x = np.asarray(X)
    if x.ndim != 3 or x.shape[1:] != (size, size):
        raise ValueError(f"{name} must have shape (n, {size}, {size}), got {x.shape}.")
    if len(x) == 0:
        raise ValueError(f"{name} holds no image; give at least one.")
    scaled = x.astype(jnp.result_type(float)) / (255 if x.dtype == np.uint8 else 1)
    if not (np.isfinite(scaled).all() and scaled.min() >= 0 and scaled.max() <= 1):
        raise ValueError(f"{name} must be uint8, or numbers from 0 to 1; scale it.")
    return scaled


def support_labels(y: Any, n: int, ways: int) -> tuple[np.ndarray, np.ndarray]:
    """The classes, and the number of each label's."""
    y = np.asarray(y)
    if y.shape != (n,):
        raise ValueError(f"y_support must have a label for each of {n} images, got {y.shape}.")
    classes, codes = np.unique(y, return_inverse=True)
    if not 2 <= len(classes) <= ways:
        raise ValueError(
            f"y_support has {len(classes)} classes, and this learner knows tasks of 2 to {ways}; "
            "fit it on tasks with more ways."
        )
    return classes, codes


def _some(values: Sequence | np.ndarray, most: int = 5) -> str:
    values = values.tolist() if isinstance(values, np.ndarray) else list(values)
    text = ", ".join(v if isinstance(v, str) else repr(v) for v in values[:most])
    return text + (f", and {len(values) - most} more" if len(values) > most else "")
