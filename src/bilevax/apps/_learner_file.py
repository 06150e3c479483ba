"""The file of a FewShotLearner: an npz of plain arrays, with the settings as JSON."""

import json
from pathlib import Path
from typing import Any

import jax
import numpy as np

from .._files import atomic_write, npz_arrays
from .._models.one_shot import Hyper

SETTINGS = "settings"


def write(path: Path, settings: dict[str, int], lam: Hyper) -> Path:
    arrays = {_name(place): a for place, a in jax.tree_util.tree_leaves_with_path(lam)}
    with atomic_write(path) as file:
        np.savez(file, **{SETTINGS: np.array(json.dumps(settings))}, **arrays)
    return path


def read(path: Path) -> tuple[dict[str, int], dict[str, np.ndarray]]:
    """Settings and arrays. The file is not compressed: it holds no more than its size."""
    arrays = npz_arrays(path, limit=2 * path.stat().st_size)
    try:
        settings = json.loads(str(arrays.pop(SETTINGS)))
        settings = {k: int(settings[k]) for k in ("T", "filters", "ways", "size")}
        sizes = arrays["c.linear.kernel"].shape
    except (KeyError, TypeError, ValueError, OverflowError, RecursionError) as error:
        raise _strange(path) from error
    if min(settings.values()) < 1 or sizes != (settings["filters"], settings["ways"]):
        raise _strange(path)
    return settings, arrays


def fill(form: Hyper, arrays: dict[str, np.ndarray], path: Path) -> Hyper:
    """The arrays in the places of `form`."""
    there = {name: (a.shape, a.dtype.kind) for name, a in arrays.items()}
    leaves, treedef = jax.tree_util.tree_flatten_with_path(form)
    if there != {_name(place): (a.shape, a.dtype.kind) for place, a in leaves}:
        raise _strange(path)
    return treedef.unflatten([arrays[_name(place)] for place, _ in leaves])


def _strange(path: Path) -> ValueError:
    return ValueError(f"{path} is not a file that FewShotLearner.save wrote; give such a file.")


def _name(place: Any) -> str:
    return ".".join(str(entry.key) for entry in place)
