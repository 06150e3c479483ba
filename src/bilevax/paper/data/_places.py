"""Where data sets are looked for."""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..._files import DataError
from ._dataset import Dataset, Form, needs

VARIABLE = "BILEVAX_DATA"


@dataclass(frozen=True)
class Found:
    """A data set that was found: in which form, and where.

    !!! example

        >>> from bilevax.paper import data
        >>> here = data.find(data.DATASETS["digits"])
        >>> here.paths, here.read().x_test.shape
        ((), (360, 8, 8))
    """

    dataset: Dataset
    form: Form
    place: Path
    paths: tuple[Path, ...]

    def read(self) -> Any:
        return self.form.read(self.paths)


def places(data_dir: str | os.PathLike | None = None) -> Iterator[Path]:
    """The folders in which the folder of a set may be, the first that has it wins."""
    if data_dir is not None:
        yield _folder("data_dir", data_dir)
    elif os.environ.get(VARIABLE):
        yield _folder(VARIABLE, os.environ[VARIABLE])
    yield cache()


def _folder(argument: str, path: str | os.PathLike) -> Path:
    folder = Path(path).expanduser()
    if not folder.is_dir():
        raise DataError(f"{argument} = {path} is not a folder; give one that holds data sets.")
    return folder


def cache() -> Path:
    """The user's cache, which downloads go to."""
    try:
        import pooch
    except ModuleNotFoundError as error:
        raise needs(error) from error
    return Path(pooch.os_cache("bilevax"))


def found(
    dataset: Dataset, forms: Sequence[Form], data_dir: str | os.PathLike | None = None
) -> Iterator[Found]:
    """Every form in every place, in the order of preference."""
    for place in places(data_dir):
        for form in forms:
            for paths in form.there(place / dataset.name):
                yield Found(dataset, form, place, paths)


def find(dataset: Dataset, data_dir: str | os.PathLike | None = None) -> Found | None:
    """Where `load` would read a set from, or nothing if it would have to fetch it.

    **Arguments:**

    - `dataset`: one of `DATASETS`.
    - `data_dir`: a folder to look in first, instead of the one that BILEVAX_DATA names.

    **Returns:**

    A `Found`, with its `place`, its `paths`, and `read`.

    !!! example

        >>> from bilevax.paper import data
        >>> data.find(data.DATASETS["digits"]).dataset.name
        'digits'
    """
    return next(found(dataset, dataset.forms, data_dir), None)
