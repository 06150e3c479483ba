"""What a search found: the loss to be reached, and the step size that is first there."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

NEAR = 1.01
"""A good answer: within one per cent of the best loss that any method reaches."""

Row = Mapping[str, Any]


def target(cases: Mapping[str, Any]) -> float:
    """Of the cases of one problem."""
    losses = [loss for case in cases.values() for row in case["rows"] for loss in row["losses"]]
    return NEAR * float(np.nanmin(losses))


def reached(row: Row, goal: float) -> float | None:
    """The seconds until the goal; None if the run did not come so far."""
    pairs = zip(row["seconds"], row["losses"], strict=True)
    return next((seconds for seconds, loss in pairs if loss <= goal), None)


def rate(rows: Sequence[Row], goal: float) -> float | None:
    """The step size that is first at the goal; if none is, the one with the lowest loss."""
    finite = [row for row in rows if np.isfinite(row["losses"]).any()]
    if not finite:
        return None
    there = [row for row in finite if reached(row, goal) is not None]
    if there:
        return min(there, key=lambda row: reached(row, goal) or 0.0)["rate"]
    return min(finite, key=lambda row: np.nanmin(row["losses"]))["rate"]
