"""A learned matrix C as a picture."""

from typing import Any

import numpy as np

from .._pages.chart import HeatMap
from .._pages.clusters import order
from .._pages.png import heat


def draw(C: np.ndarray, names: list[str], axis: Any) -> Any:
    if axis is None:
        import matplotlib.pyplot as plt

        _, axis = plt.subplots(layout="constrained")
    blank = np.where(np.eye(len(C), dtype=bool), np.nan, C)
    places = order(C + np.eye(len(C)) * C.max())
    ordered = [names[i] for i in places]
    heat(axis, HeatMap(ordered, ordered, blank[np.ix_(places, places)].tolist(), "C", log=True))
    return axis
