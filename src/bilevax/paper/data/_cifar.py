"""What CIFAR-10 and CIFAR-100 share: the official binary version, and npz files.

The official Python version is pickled, and unpickling runs code: it is not read.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np

from ..._files import DataError, npz_arrays, npz_names, refuse
from ._dataset import Dataset, Form, Split
from ._places import VARIABLE, found, places
from ._tar import tar_members

PIXELS = 3 * 32 * 32
ADDRESS = "https://www.cs.toronto.edu/~kriz/"

Pair = tuple[np.ndarray, np.ndarray]


def archive(
    file: str,
    title: str,
    train: Mapping[str, int],
    test: Mapping[str, int],
    labels: int,
    names: Sequence[str],
) -> Form:
    """The official tar.gz: members of so many records, each labels, the finest last, and pixels."""

    def read(paths: Sequence[Path]) -> Split:
        sizes = {name: n * (labels + PIXELS) for name, n in {**train, **test}.items()}
        members = tar_members(paths[0], sizes)
        x_train, y_train = _records([members[name] for name in train], labels)
        x_test, y_test = _records([members[name] for name in test], labels)
        source = f"{title}, all images: {len(x_train):,} train and {len(x_test):,} test"
        y_train = _labels(paths[0], x_train, y_train, len(names))
        y_test = _labels(paths[0], x_test, y_test, len(names))
        return Split(x_train, y_train, x_test, y_test, tuple(names), source)

    return Form((file,), read)


def _records(members: list[bytes], labels: int) -> Pair:
    records = [np.frombuffer(raw, np.uint8).reshape(-1, labels + PIXELS) for raw in members]
    y = np.concatenate([r[:, labels - 1] for r in records])
    x = [r[:, labels:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1) for r in records]
    return np.ascontiguousarray(np.concatenate(x)), y


def images(title: str, names: Sequence[str]) -> Form:
    """An npz file with x_train, y_train, x_test, y_test, or with x and y alone."""
    return _npz("x", _images, title, names)


def _images(path: Path, x: np.ndarray) -> np.ndarray:
    if x.dtype != "u1" or x.shape[1:] != (32, 32, 3):
        raise refuse(path, f"has images {x.dtype}{x.shape}, not uint8(n, 32, 32, 3)")
    return x


def features(title: str, names: Sequence[str]) -> Form:
    """An npz file with f_train, y_train, f_test, y_test, or with f and y alone."""
    return _npz("f", _features, f"features of {title}", names)


def _features(path: Path, f: np.ndarray) -> np.ndarray:
    with np.errstate(over="ignore"):
        single = f.astype(np.float32) if f.dtype.kind == "f" else None
    if single is None or f.ndim != 2 or not np.isfinite(single).all():
        raise refuse(path, f"has features {f.dtype}{f.shape}, not a table of finite floats")
    return single


def _npz(
    letter: str,
    check: Callable[[Path, np.ndarray], np.ndarray],
    title: str,
    names: Sequence[str],
) -> Form:
    """Any npz file with the arrays of this letter; where there are several, the first by name."""

    def fits(path: Path) -> bool:
        try:
            return not {letter, f"{letter}_train"}.isdisjoint(npz_names(path))
        except DataError:
            return True  # who reads it says what is wrong with it

    def read(paths: Sequence[Path]) -> Split:
        path, arrays = paths[0], npz_arrays(paths[0])
        pooled = f"{letter}_train" not in arrays
        ends = ("",) if pooled else ("_train", "_test")
        pairs = [_pair(path, arrays, letter + end, "y" + end, len(names)) for end in ends]
        pairs = [(check(path, x), y) for x, y in pairs]
        (x_train, y_train), (x_test, y_test) = _divide(*pairs[0]) if pooled else pairs
        words = _pooled(len(pairs[0][1])) if pooled else _counts(y_train, y_test, len(names))
        source = f"{title}, {path.name}: {words}"
        return Split(x_train, y_train, x_test, y_test, tuple(names), source)

    return Form(("*.npz",), read, fits)


def _pair(
    path: Path, arrays: Mapping[str, np.ndarray], x_name: str, y_name: str, classes: int
) -> Pair:
    for name in (x_name, y_name):
        if name not in arrays:
            raise refuse(path, f"has no array {name}")
    return arrays[x_name], _labels(path, arrays[x_name], arrays[y_name], classes)


def _labels(path: Path, x: np.ndarray, y: np.ndarray, classes: int) -> np.ndarray:
    """Labels as int32, one for each image, each of a class."""
    if y.dtype.kind not in "iu" or not x.shape or y.shape != x.shape[:1] or not len(y):
        raise refuse(path, f"has labels {y.dtype}{y.shape} for images {x.dtype}{x.shape}")
    if y.min() < 0 or y.max() >= classes:
        raise refuse(path, f"has labels {y.min()} to {y.max()} among {classes} classes")
    return y.astype("i4")


def _divide(x: np.ndarray, y: np.ndarray) -> list[Pair]:
    """Of each class the first four fifths, and the rest, both in the order they came in."""
    train = np.zeros(len(y), bool)
    for label in np.unique(y):
        of_class = np.flatnonzero(y == label)
        train[of_class[: len(of_class) * 4 // 5]] = True
    return [(x[train], y[train]), (x[~train], y[~train])]


def _pooled(n: int) -> str:
    return f"{n:,} images divided here: of each class the first four fifths train, the rest test"


def _counts(y_train: np.ndarray, y_test: np.ndarray, classes: int) -> str:
    if (len(y_train), len(y_test)) == (50_000, 10_000):
        return "all images: 50,000 train and 10,000 test"
    train, test = (np.bincount(y, minlength=classes) for y in (y_train, y_test))
    if np.ptp(train) == np.ptp(test) == 0:
        return f"a balanced subset: {train[0]:,} train and {test[0]:,} test images a class"
    return f"a subset: {len(y_train):,} train and {len(y_test):,} test images"


def find_features(dataset: Dataset, data_dir: str | os.PathLike | None) -> Split:
    """The features of a set, which nobody offers for download."""
    here = next(found(dataset, dataset.features, data_dir), None)
    if here is not None:
        return here.read()
    looked = ", ".join(str(place) for place in places(data_dir))
    raise DataError(
        f"Features of {dataset.name} are not in {looked} and have no address to fetch them from: "
        f"give data_dir, or set {VARIABLE} to, a folder with {dataset.name}/ and in it an .npz "
        "file with arrays f_train, y_train, f_test, y_test, or f and y."
    )
