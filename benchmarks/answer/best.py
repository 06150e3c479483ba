"""What the runs of a race found: the loss to be reached, and who is there when."""

from collections.abc import Mapping, Sequence
from typing import Any

NEAR = 1.01
"""A good answer: within one per cent of the best loss that any method reaches."""

Row = Mapping[str, Any]


def lowest(rows: Sequence[Row]) -> float:
    """The lowest loss of some runs."""
    return min((loss for row in rows for loss in row["losses"]), default=float("inf"))


def reached(row: Row, goal: float) -> float:
    """The seconds until the goal; infinite if the run did not come so far."""
    pairs = zip(row["seconds"], row["losses"], strict=True)
    return next((seconds for seconds, loss in pairs if loss <= goal), float("inf"))


def run(rows: Sequence[Row], goal: float) -> Row:
    """The run that is first at the goal; if none is, the one with the lowest loss."""
    return min(rows, key=lambda row: (reached(row, goal), lowest([row])))
