"""What the diagnostics say about bad input."""

from collections.abc import Sequence
from typing import Any

from . import check


def rules(value: Any) -> list[Any]:
    if not isinstance(value, Sequence) or isinstance(value, str) or not value:
        raise TypeError(
            f"rules must be a list of rules, got {value!r}: write rules=[bx.Reverse(), "
            "bx.Reverse(K=10)]."
        )
    return list(value)


def depths(value: Sequence[int], T: int) -> list[int]:
    remedy = "give numbers of steps, as in (1, 5, 20)"
    out = sorted({check.integer(K, "depths", remedy) for K in value})
    if not out or out[-1] > T:
        raise ValueError(f"depths must lie between 1 and T = {T}, got {list(value)}.")
    return out


PLOT = "plot draws with matplotlib: in a clone of bilevax, pip install '.[plot]'."
