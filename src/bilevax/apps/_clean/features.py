"""From a table to numbers: numeric columns as they are, short lists of words one-hot."""

from collections.abc import Collection, Sequence
from typing import NamedTuple

import numpy as np

from ..._files import DataError
from .table_file import ADDED, TableFile

MOST = 50
"""Different words that a column may have."""


class Examples(NamedTuple):
    """What a HyperCleaner is fitted to."""

    x: np.ndarray
    y: np.ndarray
    x_trusted: np.ndarray
    y_trusted: np.ndarray
    numeric: bool
    """Whether every feature was a number in the table."""
    features: list[str]
    """The columns that were used."""


def examples(train: TableFile, trusted: TableFile, label: str, ignore: Collection[str]) -> Examples:
    """Features and labels of two tables with the same columns."""
    added = [name for name in ADDED if name in train.names]
    if added:
        raise DataError(f"{train.path} already has a column {added[0]!r}; rename it.")
    for name in (label, *ignore):
        if name not in train.columns:
            raise DataError(f"{train.path} has no column {name!r}; it has {_some(train.columns)}.")
    names = [name for name in train.columns if name != label and name not in ignore]
    _same_columns(train, trusted, [label, *names], ignore)
    if not names:
        raise DataError(f"{train.path} has no column but {label!r}; features are missing.")
    blocks = [_encode(train, trusted, name) for name in names]
    x = np.concatenate([block for block, _ in blocks], axis=1)
    y, y_trusted = (_labels(table, label) for table in (train, trusted))
    _same_labels(train, trusted, y, y_trusted)
    numeric = all(flag for _, flag in blocks)
    return Examples(x[: len(train)], y, x[len(train) :], y_trusted, numeric, names)


def _same_columns(
    train: TableFile, trusted: TableFile, names: list[str], ignore: Collection[str]
) -> None:
    missing = [name for name in names if name not in trusted.columns]
    if missing:
        raise DataError(f"{trusted.path} has no column {missing[0]!r}, which {train.path} has.")
    known = {*names, *ignore, *ADDED}
    more = [name for name in trusted.columns if name not in known]
    if more:
        raise DataError(f"{trusted.path} has a column {more[0]!r}, which {train.path} has not.")


def _labels(table: TableFile, label: str) -> np.ndarray:
    values = table.columns[label]
    out = [str(value) for value in _plain(values)]
    for place, value in zip(table.places, out, strict=True):
        if not value.strip() or value.lower() == "nan":
            raise _empty(table, place, label)
    return np.asarray(out, object).astype(str)


def _same_labels(
    train: TableFile, trusted: TableFile, y: np.ndarray, y_trusted: np.ndarray
) -> None:
    there, here = set(y.tolist()), set(y_trusted.tolist())
    if here - there:
        i = next(i for i, value in enumerate(y_trusted.tolist()) if value not in there)
        raise DataError(
            f"{trusted.path}, {trusted.places[i]}, has the label {str(y_trusted[i])!r}, which "
            f"{train.path} has not; its labels are {_some(sorted(there))}."
        )
    if there - here:
        raise DataError(
            f"{trusted.path} has no row with the label {min(there - here)!r}; give at least one "
            "trusted row for each label."
        )
    if len(there) < 2:
        raise DataError(f"{train.path} has the one label {min(there)!r}; there must be two.")


def _encode(train: TableFile, trusted: TableFile, name: str) -> tuple[np.ndarray, bool]:
    """The rows of both tables, as columns of numbers, and whether they were numbers."""
    parts = [(table, _numbers(table, name)) for table in (train, trusted)]
    if all(isinstance(numbers, np.ndarray) for _, numbers in parts):
        return np.concatenate([numbers for _, numbers in parts])[:, None], True  # pyright: ignore
    words = [str(v) for table, _ in parts for v in _plain(table.columns[name])]
    values = sorted(set(words))
    if len(values) > MOST:
        table, i = next((table, found) for table, found in parts if isinstance(found, int))
        text = str(_plain(table.columns[name])[i])
        slip = sum(_number(word) is not None for word in words) >= 0.9 * len(words)
        raise DataError(
            f"{table.path}, column {name!r}, holds text ({_short(text)} in {table.places[i]}) and "
            f"{len(values)} different values, too many to encode; "
            + (f"most are numbers: mend that {table.places[i]}, or " if slip else "")
            + f"pass --ignore {name}."
        )
    return (np.asarray(words)[:, None] == np.asarray(values)).astype(float), False


def _numbers(table: TableFile, name: str) -> np.ndarray | int:
    """The column as numbers, or the first row that is none."""
    values = table.columns[name]
    if isinstance(values, np.ndarray) and values.dtype.kind in "biuf":
        out = values.astype(float)
        bad = np.flatnonzero(~np.isfinite(out))
        if len(bad):
            raise _empty(table, table.places[int(bad[0])], name, str(out[bad[0]]))
        return out
    return _parsed(table, name, values)


def _parsed(table: TableFile, name: str, values: Sequence | np.ndarray) -> np.ndarray | int:
    out, first = np.zeros(len(table)), None
    for i, text in enumerate(map(str, values)):
        if not text.strip():
            raise _empty(table, table.places[i], name)
        number = _number(text)
        if number is None:
            first = i if first is None else first
            continue
        if not np.isfinite(number):
            raise _empty(table, table.places[i], name, text.strip())
        out[i] = number
    return out if first is None else first


def _number(text: str) -> float | None:
    try:
        return float(text.replace("_", "x"))  # 1_000 is text, though not to Python
    except ValueError:
        return None


def _empty(table: TableFile, place: str, name: str, value: str = "") -> DataError:
    what = f"holds {value}" if value else "is empty"
    return DataError(
        f"{table.path}, {place}, column {name!r}, {what}; fill it or leave the row out."
    )


def _plain(values: Sequence | np.ndarray) -> list:
    return values.tolist() if isinstance(values, np.ndarray) else list(values)


def _short(text: str, most: int = 30) -> str:
    return repr(text if len(text) <= most else text[:most] + "...")


def _some(names: Collection[str], most: int = 8) -> str:
    names = [repr(name) for name in names]
    more = f", and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more
