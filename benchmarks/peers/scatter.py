"""Error against time: a point for each method, with names where there is room for them."""

import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from bilevax._pictures.palette import RED

from .style import LOOK

EXACT, OFF = 3e-3, 2.5
"""Errors below are drawn as exact, those above as off the picture."""
Row = dict[str, Any]
PLACES = (
    (6, 4, "left"), (6, -10, "left"), (-6, 4, "right"), (-6, -10, "right"), (6, 14, "left"),
    (6, -20, "left"), (-6, 14, "right"), (-6, -20, "right"), (6, 24, "left"), (6, -30, "left"),
)  # fmt: skip


def error_and_time(axes: Axes, rows: Sequence[Row], named: Callable[[Row], bool]) -> None:
    for library in LOOK:
        own = sorted((r for r in rows if r["library"] == library), key=lambda r: r["ms"])
        _points(axes, library, own)
    axes.axhline(0.05, color=RED.light, lw=0.9, ls=":", zorder=1)
    _axes(axes, [row["ms"] for row in rows])
    taken = [(*_pixels(axes, row), 7.0, 7.0) for row in rows]
    for row in sorted(rows, key=lambda r: (r["error"], r["ms"])):
        if named(row):
            _name(axes, row, taken)


def height(error: float) -> float:
    return float(np.clip(error, EXACT, OFF)) if np.isfinite(error) else OFF


def _points(axes: Axes, library: str, rows: Sequence[Row]) -> None:
    """Truncations are joined in the order of K."""
    colour, marker = LOOK[library]
    depth = lambda r: int(r["want"][2:])
    cut = sorted((r for r in rows if re.fullmatch(r"K=\d+", r["want"])), key=depth)
    x, y = [r["ms"] for r in cut], [height(r["error"]) for r in cut]
    axes.plot(x, y, color=colour.light, lw=0.9, alpha=0.5, zorder=1)
    ours = library == "bilevax"
    axes.scatter(
        [r["ms"] for r in rows], [height(r["error"]) for r in rows], s=46 if ours else 26,
        marker=marker, color=colour.light, label=library if rows else "_", linewidths=0,
        zorder=4 if ours else 3,
    )  # fmt: skip


def _axes(axes: Axes, ms: Sequence[float]) -> None:
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_ylim(0.6 * EXACT, 1.6 * OFF)
    axes.set_xlim(0.75 * min(ms, default=1), 1.4 * max(ms, default=10))
    axes.xaxis.set_major_locator(LogLocator(10, (1, 2, 5)))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:g}"))
    axes.xaxis.set_minor_locator(NullLocator())
    ticks = {EXACT: "exact", 0.01: "1 %", 0.05: "5 %", 0.1: "10 %", 0.5: "50 %", 1: "100 %"}
    axes.set_yticks(list(ticks), [*ticks.values()])
    axes.yaxis.set_minor_locator(NullLocator())


def _pixels(axes: Axes, row: Row) -> tuple[float, float]:
    """Where a point is, in points of print; the layout may still change a little."""
    x, y = axes.transData.transform((row["ms"], height(row["error"])))
    scale = 72 / axes.figure.dpi
    return scale * x, scale * y


def _name(axes: Axes, row: Row, taken: list[tuple[float, float, float, float]]) -> None:
    """The first place beside the point that is free, else none."""
    x, y = _pixels(axes, row)
    size, width = 7.5, 4.3 * len(row["want"])
    for dx, dy, side in PLACES:
        centre = (x + dx + (width if side == "left" else -width) / 2, y + dy + size / 3)
        box = (*centre, width, size)
        if _inside(axes, box) and not any(_overlap(box, other) for other in taken):
            taken.append(box)
            axes.annotate(
                row["want"], (row["ms"], height(row["error"])), (dx, dy), ha=side, fontsize=size,
                textcoords="offset points", color=LOOK[row["library"]][0].light, zorder=5,
                arrowprops={"arrowstyle": "-", "lw": 0.5, "shrinkA": 0, "shrinkB": 3}
                if abs(dy) > 12
                else None,
            )  # fmt: skip
            return


def _inside(axes: Axes, box) -> bool:
    scale = 72 / axes.figure.dpi
    sides = (axes.bbox.x0, axes.bbox.x1), (axes.bbox.y0, axes.bbox.y1)
    return all(
        scale * low < box[i] - box[i + 2] / 2 and box[i] + box[i + 2] / 2 < scale * high
        for i, (low, high) in enumerate(sides)
    )


def _overlap(a, b) -> bool:
    return abs(a[0] - b[0]) < (a[2] + b[2]) / 2 and abs(a[1] - b[1]) < (a[3] + b[3]) / 2
