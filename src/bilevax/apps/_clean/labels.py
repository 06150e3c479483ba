"""The column of labels, in both tables."""

import numpy as np

from .problems import Problems, some
from .table_file import TableFile


def labels(
    train: TableFile, trusted: TableFile, name: str, said: Problems
) -> tuple[np.ndarray, np.ndarray]:
    """Of both tables, as text: none is empty, and both have the same, two or more."""
    if not all(name in table.columns for table in (train, trusted)):
        return np.zeros(0), np.zeros(0)  # which is a problem that was said
    y, y_trusted = (_texts(table, name, said) for table in (train, trusted))
    _compare(train, trusted, y, y_trusted, said)
    return y, y_trusted


def _texts(table: TableFile, name: str, said: Problems) -> np.ndarray:
    """The labels, without blanks around them; an empty one is ""."""
    values = table.columns[name]
    values = values.tolist() if isinstance(values, np.ndarray) else values
    out = [str(value).strip() for value in values]
    empty = [i for i, value in enumerate(out) if not value or value.lower() == "nan"]
    if empty:
        more = f" (such rows: {len(empty)})" if len(empty) > 1 else ""
        said.add(
            f"{table.path}, {table.places[empty[0]]}, column {name!r}, is empty{more}; fill it or "
            "leave the row out."
        )
    for i in empty:
        out[i] = ""
    return np.asarray(out, object).astype(str)


def _compare(
    train: TableFile, trusted: TableFile, y: np.ndarray, y_trusted: np.ndarray, said: Problems
) -> None:
    there, here = (set(labels.tolist()) - {""} for labels in (y, y_trusted))
    if here - there:
        i = next(i for i, value in enumerate(y_trusted.tolist()) if value in here - there)
        said.add(
            f"{trusted.path}, {trusted.places[i]}, has the label {str(y_trusted[i])!r}, which "
            f"{train.path} has not; its labels are {some(sorted(there))}."
        )
    if there - here:
        said.add(
            f"{trusted.path} has no row with the label {some(sorted(there - here))}; give at least "
            "one trusted row for each label."
        )
    if len(there) == 1:
        said.add(f"{train.path} has the one label {min(there)!r}; there must be two.")
