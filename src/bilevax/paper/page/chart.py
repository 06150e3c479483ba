"""What a figure shows, in words that both the page and a printed figure can draw."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from ..._pictures.palette import BLUE, Colour

Numbers = Sequence[float]


@dataclass(frozen=True)
class Axis:
    """A label, a scale, and if it is not all of the data, what is seen of it."""

    label: str
    log: bool = False
    limits: tuple[float, float] | None = None


@dataclass(frozen=True)
class Series:
    """Points in order, joined by a line unless `line` is false; a band from `low` to `high`."""

    x: Numbers
    y: Numbers
    label: str = ""
    colour: Colour = BLUE
    dashed: bool = False
    line: bool = True
    mark: Literal["", "dot", "cross"] = ""
    low: Numbers | None = None
    high: Numbers | None = None


@dataclass(frozen=True)
class Contour:
    """Values z[i][j] at (x[j], y[i]); filled, with a scale beside it, or only its lines."""

    x: Numbers
    y: Numbers
    z: Sequence[Numbers]
    filled: bool = False
    levels: int = 24


@dataclass(frozen=True)
class HeatMap:
    """Values z[i][j] of a row and a column, by name, the first row on top; nan is left blank."""

    rows: Sequence[str]
    columns: Sequence[str]
    z: Sequence[Numbers]
    label: str = ""
    """What the values are."""
    log: bool = False


@dataclass(frozen=True)
class Arrows:
    """From (x, y) by (dx, dy)."""

    x: Numbers
    y: Numbers
    dx: Numbers
    dy: Numbers
    label: str = ""
    colour: Colour = BLUE


@dataclass(frozen=True)
class Chart:
    """A figure. `name` is that of its file; `equal`: one unit is as long on both axes."""

    name: str
    title: str
    caption: str
    x: Axis
    y: Axis
    series: tuple[Series, ...] = ()
    contour: Contour | None = None
    arrows: Arrows | None = None
    equal: bool = False
    level: float | None = None
    """Where a thin horizontal line is."""
    legend: str = ""
    """What the labels are values of."""
    heat: HeatMap | None = None

    def drawn(self, series: Series) -> tuple[list[float], list[float]]:
        """The points of a series, with a gap (nan) for what the axes cannot show."""
        shown = [_shows(self.x, a) and _shows(self.y, b) for a, b in _pairs(series)]
        gap = lambda values: [v if s else math.nan for v, s in zip(values, shown, strict=True)]
        return gap(series.x), gap(series.y)

    @property
    def lost(self) -> int:
        """How many points the axes cannot show."""
        gaps = [math.isnan(x) for series in self.series for x in self.drawn(series)[0]]
        return sum(gaps)

    @property
    def legend_is_shown(self) -> bool:
        return bool(self.arrows) or any(series.label for series in self.series)

    @property
    def text(self) -> str:
        """The caption, and what is missing from the picture."""
        if not self.lost:
            return self.caption
        one = "1 point is" if self.lost == 1 else f"{self.lost} points are"
        why = "not finite, or not positive" if self.x.log or self.y.log else "not finite"
        return f"{self.caption} ({one} {why}, and not drawn.)".strip()


def _pairs(series: Series):
    return zip(series.x, series.y, strict=True)


def _shows(axis: Axis, value: float) -> bool:
    return math.isfinite(value) and (value > 0 or not axis.log)
