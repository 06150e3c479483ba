"""Values of records. What is missing is nan; what is wrong is an error, in a sentence."""

import math
from typing import Any

from ..records import Row, RunError

LARGEST = 1e300
"""So that sums and differences are numbers too."""


def number(row: Row, key: str) -> float:
    """A number; nan if it is not there."""
    value: Any = row.get(key)
    if value is None:
        return math.nan
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _wrong(row, key, "a number")
    if LARGEST < abs(value) < math.inf:
        raise _wrong(row, key, f"at most {LARGEST:g} in size, or inf")
    return float(value)


def integer(row: Row, key: str) -> int:
    """A whole number, which must be there."""
    value = number(row, key)
    if not value.is_integer():
        raise _wrong(row, key, "a whole number")
    return int(value)


def word(row: Row, key: str) -> str:
    """A text, which must be there."""
    if not isinstance(row.get(key), str):
        raise _wrong(row, key, "a text")
    return row[key]


def numbers(row: Row, key: str) -> list[float]:
    """A list of numbers, which must be there."""
    values = row.get(key)
    if not isinstance(values, list):
        raise _wrong(row, key, "a list of numbers")
    return [number({"kind": row.get("kind"), key: value}, key) for value in values]


def _wrong(row: Row, key: str, what: str) -> RunError:
    kind, value = short(row.get("kind")), short(repr(row.get(key, "nothing")))
    return RunError(f"a record of kind {kind} has {key} = {value}; it must be {what}.")


def short(value: Any, length: int = 90) -> str:
    """Any value on a line."""
    text = f"{value:.6g}" if isinstance(value, float) else str(value)
    text = " ".join(text.split())
    return text if len(text) <= length else text[: length - 1] + "…"
