"""What CIFAR-10 and CIFAR-100 share: the official binary version, and npz files.

The official Python version is pickled, and unpickling runs code: it is not read.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ._bounded import npz_arrays, refuse, tar_members
from ._dataset import DataError, Dataset, Form, Split
from ._places import VARIABLE, found, places

if TYPE_CHECKING:
    import numpy as np

PIXELS = 3 * 32 * 32
ADDRESS = "https://www.cs.toronto.edu/~kriz/"


def archive(
    file: str,
    what: str,
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
        source = f"{what} all images: {len(x_train):,} train and {len(x_test):,} test"
        return _checked(paths[0], Split(x_train, y_train, x_test, y_test, tuple(names), source))

    return Form((file,), read)


def _records(members: list[bytes], labels: int) -> "tuple[np.ndarray, np.ndarray]":
    import numpy as np

    records = [np.frombuffer(raw, np.uint8).reshape(-1, labels + PIXELS) for raw in members]
    y = np.concatenate([r[:, labels - 1] for r in records]).astype(np.int32)
    x = [r[:, labels:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1) for r in records]
    return np.ascontiguousarray(np.concatenate(x)), y


def images(file: str, what: str, names: Sequence[str]) -> Form:
    """An npz file with x_train, y_train, x_test, y_test, or with x and y alone."""

    def check(path: Path, x: "np.ndarray") -> "np.ndarray":
        if x.dtype != "u1" or x.shape[1:] != (32, 32, 3):
            raise refuse(path, f"has images {x.dtype}{x.shape}, not uint8(n, 32, 32, 3)")
        return x

    return Form((file,), _npz("x", check, what, names))


def features(file: str, what: str, names: Sequence[str]) -> Form:
    """An npz file with f_train, y_train, f_test, y_test, or with f and y alone."""

    def check(path: Path, f: "np.ndarray") -> "np.ndarray":
        import numpy as np

        if f.dtype.kind != "f" or f.ndim != 2 or not np.isfinite(f).all():
            raise refuse(path, f"has features {f.dtype}{f.shape}, not a table of finite floats")
        return f.astype(np.float32)

    return Form((file,), _npz("f", check, what, names))


def _npz(
    letter: str,
    check: "Callable[[Path, np.ndarray], np.ndarray]",
    what: str,
    names: Sequence[str],
) -> Callable[[Sequence[Path]], Split]:
    def read(paths: Sequence[Path]) -> Split:
        path, arrays = paths[0], npz_arrays(paths[0])
        divided = f"{letter}_train" in arrays
        keys = [letter + "_train", "y_train", letter + "_test", "y_test"][: 4 if divided else 0]
        for key in keys or (letter, "y"):
            if key not in arrays:
                raise refuse(path, f"has no array {key}")
        parts = [arrays[key] for key in keys] if keys else _divide(arrays[letter], arrays["y"])
        x_train, y_train, x_test, y_test = parts
        x_train, x_test = check(path, x_train), check(path, x_test)
        split = Split(x_train, y_train, x_test, y_test, tuple(names), "")
        words = _counts(_checked(path, split)) if divided else _pooled(len(arrays["y"]))
        return _checked(path, split, f"{what} {words}")

    return read


def _divide(x: "np.ndarray", y: "np.ndarray") -> "list[np.ndarray]":
    """Of each class the first four fifths, and the rest, both in the order they came in."""
    import numpy as np

    train = np.zeros(len(y), bool)
    for label in np.unique(y):
        of_class = np.flatnonzero(y == label)
        train[of_class[: len(of_class) * 4 // 5]] = True
    train, x = train[: len(x)], x[: len(y)]
    return [x[train], y[train], x[~train], y[~train]]


def _pooled(n: int) -> str:
    return f"{n:,} images divided here: of each class the first four fifths train, the rest test"


def _counts(split: Split) -> str:
    import numpy as np

    counts = [np.bincount(y, minlength=len(split.names)) for y in (split.y_train, split.y_test)]
    if all(len(set(count.tolist())) == 1 for count in counts):
        train, test = (int(count[0]) for count in counts)
        return f"a balanced subset: {train:,} train and {test:,} test images a class"
    return f"a subset: {len(split.y_train):,} train and {len(split.y_test):,} test images"


def _checked(path: Path, split: Split, source: str | None = None) -> Split:
    """A split whose parts fit each other, with int32 labels."""
    import numpy as np

    labels = []
    for x, y in ((split.x_train, split.y_train), (split.x_test, split.y_test)):
        if y.dtype.kind not in "iu" or y.shape != (len(x),) or not len(y):
            raise refuse(path, f"has labels {y.dtype}{y.shape} for {len(x):,} images")
        if y.min() < 0 or y.max() >= len(split.names):
            raise refuse(path, f"has labels up to {y.max()} among {len(split.names)} classes")
        labels.append(y.astype(np.int32))
    words = split.source if source is None else source
    return Split(split.x_train, labels[0], split.x_test, labels[1], split.names, words)


def find_features(dataset: Dataset, data_dir: str | os.PathLike | None) -> Split:
    """The features of a set, which nobody offers for download."""
    here = next(found(dataset, dataset.features, data_dir), None)
    if here is not None:
        return here.read()
    looked = ", ".join(str(place) for place in places(data_dir))
    files = " or ".join(f"{dataset.name}/{form.files[0]}" for form in dataset.features)
    raise DataError(
        f"Features of {dataset.name} are not in {looked} and have no address to fetch them from: "
        f"give data_dir, or set {VARIABLE} to, a folder with {files}."
    )
