"""Reading what is found, to see whether it is what it should be."""

import os
from collections.abc import Iterator
from dataclasses import dataclass

from ..._files import DataError, sha256
from . import _places
from ._dataset import Dataset
from ._places import Found


@dataclass(frozen=True)
class Checked:
    """The result of reading a set from one place.

    !!! example

        >>> from bilevax.paper import data
        >>> next(data.check(data.DATASETS["digits"])).words
        "scikit-learn's digits, divided here: the first 1,437 train and the last 360 test"
    """

    here: Found
    fits: bool
    words: str


def check(dataset: Dataset, data_dir: str | os.PathLike | None = None) -> Iterator[Checked]:
    """Read a set in every form and place it is found in; nothing is fetched.

    **Arguments:**

    - `dataset`: one of `DATASETS`.
    - `data_dir`: a folder to look in first, instead of the one that BILEVAX_DATA names.

    **Returns:**

    A `Checked` for each: files parse, shapes and labels are right; those in the cache have the
    official SHA-256 too, while other files of the right content are let be.

    !!! example

        >>> from bilevax.paper import data
        >>> [checked.fits for checked in data.check(data.DATASETS["digits"])]
        [True]
    """
    forms = dataset.forms + dataset.features
    for here in _places.found(dataset, forms, data_dir):
        yield _checked(here)
        if not here.form.files:
            return  # of a library, so the same in every place


def _checked(here: Found) -> Checked:
    try:
        words = here.read().source
    except DataError as error:
        return Checked(here, False, str(error))
    other = _other_bytes(here)
    if other is None:
        return Checked(here, True, words)
    words = f"{words}; {other} has other bytes than the official file"
    return Checked(here, here.place != _places.cache(), words)


def _other_bytes(here: Found) -> str | None:
    """A file that is not, byte for byte, the official one of its name."""
    sums = {file.name: file.sha256 for file in here.dataset.files}
    for path in here.paths:
        if path.name in sums and sha256(path) != sums[path.name]:
            return path.name
    return None
