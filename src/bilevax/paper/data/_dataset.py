"""What a data set is: its files, the forms it may lie on disk in, and what comes out."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Split:
    """Examples for training and for testing.

    !!! example

        >>> from bilevax.paper import data
        >>> split = data.digits.load()
        >>> split.x_train.shape, split.y_test.dtype.name, split.names[3]
        ((1437, 8, 8), 'int32', '3')
    """

    x_train: np.ndarray
    """uint8 images, or float32 features, one a row."""
    y_train: np.ndarray
    """int32 labels, each an index into `names`."""
    x_test: np.ndarray
    y_test: np.ndarray
    names: tuple[str, ...]
    source: str
    """What these data are, in words."""


@dataclass(frozen=True)
class File:
    """A file at its official address.

    !!! example

        >>> from bilevax.paper import data
        >>> data.DATASETS["mnist"].files[0].name
        'train-images-idx3-ubyte.gz'
    """

    name: str
    url: str
    sha256: str
    size: int


@dataclass(frozen=True)
class Form:
    """Files that a set may consist of, relative to its folder, and what reads them.

    !!! example

        >>> from bilevax.paper import data
        >>> [form.files for form in data.DATASETS["cifar10"].forms]
        [('cifar-10-binary.tar.gz',), ('*.npz',)]
    """

    files: tuple[str, ...]
    read: Callable[[Sequence[Path]], Any]
    fits: Callable[[Path], bool] | None = None
    """With it, `files` is one pattern, for which any file that fits will do."""

    def there(self, folder: Path) -> Iterator[tuple[Path, ...]]:
        """The files of this form in a folder; none if one is missing."""
        if self.fits is not None:
            yield from ((path,) for path in sorted(folder.glob(*self.files)) if self.fits(path))
            return
        paths = tuple(folder / file for file in self.files)
        if all(path.is_file() for path in paths):
            yield paths


@dataclass(frozen=True)
class Dataset:
    """A data set as it is looked for, fetched and cited.

    Its files lie in a folder of its name. `forms` are in order of preference; the first is
    the official one, made of `files`. A set without files comes with a library.

    !!! example

        >>> from bilevax.paper import data
        >>> data.DATASETS["fashion-mnist"].licence, data.DATASETS["digits"].size
        ('MIT', 0)
    """

    name: str
    description: str
    licence: str
    citation: str
    forms: tuple[Form, ...]
    files: tuple[File, ...] = ()
    features: tuple[Form, ...] = ()

    @property
    def size(self) -> int:
        """Bytes to fetch."""
        return sum(file.size for file in self.files)


def needs(error: ModuleNotFoundError) -> ImportError:
    """The sentence for a library that is not installed."""
    return ImportError(
        f"Data sets are read with {error.name}: in a clone of bilevax, pip install '.[tools]'."
    )
