"""Cells of text as numbers: plain, with decimal commas, or dates."""

import re
from collections.abc import Callable
from datetime import UTC, datetime

import numpy as np

EMPTY = {"", "na", "n/a", "nan", "null", "none", "-", "?"}
"""Cells of a column of numbers that hold none, in lower case."""
LIKE_NUMBER = re.compile(r"[+-]?[\d.,'/: ]*\d ?%?")
"""What somebody may have meant as a number or a date."""
ISO = re.compile(r"\d{4}-\d\d-\d\d")


class NotSo(Exception):
    """A column is not of this kind."""


def read(words: list[str], reader: Callable[[list[str]], list[float]]) -> np.ndarray:
    stripped = [word.strip() for word in words]
    full = [i for i, word in enumerate(stripped) if word.lower() not in EMPTY]
    out = np.full(len(words), np.nan)
    try:
        out[full] = reader([stripped[i] for i in full])
    except ValueError:
        raise NotSo from None
    return out


def _plain_numbers(words: list[str]) -> list[float]:
    return [_number(word) for word in words]


def _number(word: str) -> float:
    return float(word.replace("_", "x"))  # 1_000 is text, though not to Python


def is_number(word: str) -> bool:
    try:
        return word.strip().lower() in EMPTY or _number(word) is not None
    except ValueError:
        return False


def like_number(word: str) -> bool:
    """Whether somebody may have meant a number or a date."""
    return is_number(word) or bool(LIKE_NUMBER.fullmatch(word.strip()) or ISO.match(word.strip()))


def odd(words: list[str]) -> int:
    """The first that is nothing like a number; else no number and no date; else no number."""
    words = [word.strip() for word in words]
    strange = [i for i, word in enumerate(words) if not is_number(word)]
    unlike = (i for i in strange if not like_number(words[i]))
    return next(unlike, next((i for i in strange if not ISO.match(words[i])), strange[0]))


def _decimal_commas(words: list[str]) -> list[float]:
    """1,5; but 1,234 may be a number of thousands."""
    if any("." in word for word in words):
        raise ValueError
    out = [_number(word.replace(",", ".")) for word in words]
    if all(re.fullmatch(r"[+-]?[1-9]\d{0,2},\d{3}", word) for word in words if "," in word):
        raise ValueError
    return out


def _days(words: list[str]) -> list[float]:
    """ISO dates and times, as days since 1970."""
    times = [datetime.fromisoformat(word) for word in words]
    return [(t if t.tzinfo else t.replace(tzinfo=UTC)).timestamp() / 86400 for t in times]


READERS = {
    "number": _plain_numbers,
    "number with a decimal comma": _decimal_commas,
    "date, in days": _days,
}
