"""MNIST's format: gzipped idx files of uint8, four for a set."""

import gzip
import math
import struct
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from ..._files import reading, refuse
from ._dataset import File, Form, Split

SHAPES = {
    "train-images-idx3-ubyte.gz": (60_000, 28, 28),
    "train-labels-idx1-ubyte.gz": (60_000,),
    "t10k-images-idx3-ubyte.gz": (10_000, 28, 28),
    "t10k-labels-idx1-ubyte.gz": (10_000,),
}


def read(path: Path, shape: tuple[int, ...]) -> np.ndarray:
    """The array of an idx file, which must have this shape."""
    count = math.prod(shape)
    with reading(path), gzip.open(path) as stream:
        header = stream.read(4 + 4 * len(shape))
        if header[:4] != bytes([0, 0, 8, len(shape)]):
            raise refuse(path, f"is not an idx file of uint8 with {len(shape)} axes")
        if header[4:] != struct.pack(f">{len(shape)}I", *shape):
            raise refuse(path, f"has not the shape {shape}")
        body = stream.read(count + 1)
    if len(body) != count:
        raise refuse(path, f"has {'more' if len(body) > count else 'less'} than {count:,} values")
    return np.frombuffer(body, np.uint8).reshape(shape)


def four(names: tuple[str, ...], source: str) -> Form:
    """The form of MNIST and its kin."""
    return Form(tuple(SHAPES), _reader(names, source))


def _reader(names: tuple[str, ...], source: str) -> Callable[[Sequence[Path]], Split]:
    def split(paths: Sequence[Path]) -> Split:
        arrays = [read(path, shape) for path, shape in zip(paths, SHAPES.values(), strict=True)]
        x_train, y_train, x_test, y_test = arrays
        for path, y in ((paths[1], y_train), (paths[3], y_test)):
            if y.max(initial=0) >= len(names):
                raise refuse(path, f"has the label {y.max()} among {len(names)} classes")
        return Split(x_train, y_train.astype("i4"), x_test, y_test.astype("i4"), names, source)

    return split


def files(address: str, *sums: tuple[str, int]) -> tuple[File, ...]:
    """The four files at an address, with their SHA-256 and sizes."""
    named = zip(SHAPES, sums, strict=True)
    return tuple(File(name, address + name, sha256, size) for name, (sha256, size) in named)
