"""From tables to numbers. Every column is a number, a date or one of a few words, or is refused."""

from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple

import numpy as np

from ..._files import DataError
from .cells import READERS, NotSo, is_number, like_number, odd, read
from .labels import labels
from .problems import Problems, some
from .table_file import ADDED, TableFile

MOST = 50
"""Different words that a column may have."""
FILL: dict[str, Callable] = {"mean": np.nanmean, "median": np.nanmedian}


class Examples(NamedTuple):
    """What a HyperCleaner is fitted to."""

    x: np.ndarray
    y: np.ndarray
    x_trusted: np.ndarray
    y_trusted: np.ndarray
    columns: dict[str, str]
    """How each column is used, in words."""
    features: list[str]
    """The columns that are not ignored."""
    numeric: bool
    """Whether every feature is one number of the table."""


class EncodedColumn(NamedTuple):
    """A column of both tables: the rows to clean, then the trusted ones."""

    x: np.ndarray
    how: str
    numeric: bool


def examples(
    train: TableFile,
    trusted: TableFile,
    label: str,
    ignore: Collection[str] = (),
    missing: str | None = None,
) -> Examples:
    """Features and labels of two tables with the same columns.

    `missing` says what an empty number becomes: the "mean" or "median" of its column; a further
    feature tells where that was. Default: it is refused.
    """
    if missing is not None and missing not in FILL:
        raise DataError(f"--missing must be {' or '.join(FILL)}, got {missing!r}.")
    said = Problems([*train.faults, *trusted.faults])
    names = _feature_names(train, trusted, label, ignore, said)
    y, y_trusted = labels(train, trusted, label, said)
    found = {}
    for name in names:
        with said.gather(column=name):
            found[name] = _column(train, trusted, name, missing)
    said.stop()
    x = np.concatenate([column.x for column in found.values()], axis=1)
    columns = {name: column.how for name, column in found.items()} | dict.fromkeys(
        ignore, "ignored"
    )
    numeric = all(column.numeric for column in found.values())
    return Examples(x[: len(train)], y, x[len(train) :], y_trusted, columns, names, numeric)


def _feature_names(
    train: TableFile, trusted: TableFile, label: str, ignore: Collection[str], said: Problems
) -> list[str]:
    """The columns to learn from: those of both tables."""
    added = [name for name in ADDED if name in train.names]
    if added:
        said.add(f"{train.path} already has a column {some(added)}; rename it.")
    for name in (label, *ignore):
        if name not in train.columns:
            known = some(list(train.columns))
            said.add(f"{train.path} has no column {name!r}; it has {known}.")
    names = [name for name in train.columns if name not in {label, *ignore}]
    missing = [name for name in (label, *names) if name not in {*trusted.columns, *added}]
    if missing:
        said.add(f"{trusted.path} has no column {some(missing)}, which {train.path} has.")
    known = {label, *names, *ignore, *ADDED}
    more = [name for name in trusted.columns if name not in known]
    if more:
        said.add(f"{trusted.path} has a column {some(more)}, which {train.path} has not.")
    if not names:
        said.add(f"{train.path} has no column but {label!r}; features are missing.")
    return [name for name in names if name in trusted.columns]


def _column(train: TableFile, trusted: TableFile, name: str, missing: str | None) -> EncodedColumn:
    def at(i: int) -> str:
        table, row = (train, i) if i < len(train) else (trusted, i - len(train))
        return f"{table.path}, {table.places[row]}, column {name!r}"

    values = [table.columns[name] for table in (train, trusted)]
    if all(isinstance(v, np.ndarray) and v.dtype.kind in "biuf" for v in values):
        x = np.concatenate([np.asarray(v, float) for v in values])
        return _numbers(x, "number", at, missing)
    words = [str(value).strip() for part in values for value in _plain(part)]
    for how, reader in READERS.items():
        try:
            return _numbers(read(words, reader), how, at, missing)
        except NotSo:
            continue
    return _one_hot(words, name, at)


def _numbers(x: np.ndarray, how: str, at: Callable, missing: str | None) -> EncodedColumn:
    infinite, empty = np.flatnonzero(np.isinf(x)), np.isnan(x)
    if len(infinite):
        raise DataError(f"{at(infinite[0])}, holds {x[infinite[0]]}; mend it or leave the row out.")
    if not empty.any():
        return EncodedColumn(x[:, None], how, True)
    if empty.all():
        raise DataError(f"{at(0)}, is empty, as are all of its cells; ignore the column.")
    if missing is None:
        raise DataError(
            f"{at(int(empty.argmax()))}, is empty (or NA, -, ?), as are {empty.sum()} cells of the "
            "column; fill them, or pass --missing median."
        )
    fill = float(FILL[missing](x))
    x = np.stack([np.where(empty, fill, x), empty.astype(float)], axis=1)
    filled = f"{empty.sum()} empty cells filled with the {missing}, {fill:.6g}"
    return EncodedColumn(x, f"{how}; {filled}", False)


def _one_hot(words: list[str], name: str, at: Callable) -> EncodedColumn:
    values = sorted(set(words))
    if sum(map(like_number, words)) >= 0.9 * len(words):
        i = odd(words)
        raise DataError(
            f"{at(i)}, holds {_short(words[i])} among numbers or dates; write numbers as 1234.5 "
            f"and dates as 2024-12-31, or pass --ignore {name}."
        )
    if len(values) > MOST:
        i = next(i for i, word in enumerate(words) if not is_number(word))
        raise DataError(
            f"{at(i)}, holds text ({_short(words[i])}) and the column {len(values)} different "
            f"values, too many to encode; pass --ignore {name}."
        )
    x = (np.asarray(words)[:, None] == np.asarray(values)).astype(float)
    numbers = sum(map(is_number, values))
    also = f", {numbers} of them numbers" if numbers > 1 else ""
    how = "one word everywhere" if len(values) == 1 else f"one of {len(values)} words{also}"
    return EncodedColumn(x, how, False)


def _plain(values: Sequence | np.ndarray) -> list:
    return values.tolist() if isinstance(values, np.ndarray) else list(values)


def _short(text: str, most: int = 30) -> str:
    return repr(text if len(text) <= most else text[:most] + "...")
