"""What FewShotLearner asks of images, labels and files, each in one sentence."""

import json
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .._files import atomic_write, npz_arrays
from .._models.network import Hyper

SIDES = (16, 31)
"""Four times halved, a side of these leaves one pixel."""
SETTINGS = "settings"


def form(tasks: Any, key: Any) -> tuple[int, int]:
    """Number of classes and side of the images of a task."""
    if not callable(tasks):
        raise TypeError(
            f"tasks must be a function key -> task, as TaskSampler(images) is, got "
            f"{type(tasks).__name__}."
        )
    task: Any = tasks(key)
    side(np.shape(task.x), "the x of a task")
    return int(jnp.max(task.y)) + 1, np.shape(task.x)[1]


def side(shape: tuple[int, ...], name: str) -> None:
    if len(shape) != 3 or shape[1] != shape[2] or not SIDES[0] <= shape[1] <= SIDES[1]:
        raise ValueError(
            f"{name} must be images (n, side, side) with a side of {SIDES[0]} to {SIDES[1]}, got "
            f"shape {shape}."
        )


def as_images(X: Any, name: str, size: int) -> np.ndarray:
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


def labels(y: Any, n: int, ways: int) -> tuple[np.ndarray, np.ndarray]:
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


def first_outputs(lam: Hyper, n: int) -> Hyper:
    """A linear layer with n of its outputs; in training classes were numbered at random."""
    linear = jax.tree.map(lambda a: a[..., :n], lam["c"]["linear"])
    return lam | {"c": lam["c"] | {"linear": linear}}


def write(path: Path, settings: dict[str, int], lam: Hyper) -> Path:
    arrays = {_name(place): a for place, a in jax.tree_util.tree_leaves_with_path(lam)}
    with atomic_write(path) as file:
        np.savez(file, **{SETTINGS: np.array(json.dumps(settings))}, **arrays)
    return path


def read(path: Path) -> tuple[dict[str, int], dict[str, np.ndarray]]:
    arrays = npz_arrays(path)
    try:
        settings = json.loads(str(arrays.pop(SETTINGS)))
        return {k: int(settings[k]) for k in ("T", "filters", "ways", "size")}, arrays
    except (KeyError, TypeError, ValueError) as error:
        raise _strange(path) from error


def fill(form: Hyper, arrays: dict[str, np.ndarray], path: Path) -> Hyper:
    """The arrays in the places of `form`."""
    there = {name: a.shape for name, a in arrays.items()}
    leaves, treedef = jax.tree_util.tree_flatten_with_path(form)
    if there != {_name(place): a.shape for place, a in leaves}:
        raise _strange(path)
    return treedef.unflatten([arrays[_name(place)] for place, _ in leaves])


def _strange(path: Path) -> ValueError:
    return ValueError(f"{path} is not a file that FewShotLearner.save wrote; give such a file.")


def _name(place: Any) -> str:
    return ".".join(str(entry.key) for entry in place)
