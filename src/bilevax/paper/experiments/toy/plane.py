"""What of the plane of λ a figure shows."""

import math
from collections.abc import Iterable, Sequence

from ...._pictures.palette import TEAL
from ...page.chart import Arrows, Numbers, Series

Range = tuple[float, float]
Grid = tuple[list[float], list[float], list[list[float]]]


def window(series: Iterable[Series]) -> tuple[Range, Range]:
    """A square that holds every finite point, with a margin."""
    points = [
        (x, y)
        for one in series
        for x, y in zip(one.x, one.y, strict=True)
        if math.isfinite(x) and math.isfinite(y)
    ] or [(0.0, 0.0)]
    ranges = [(min(axis), max(axis)) for axis in zip(*points, strict=True)]
    half = 0.58 * max(high - low for low, high in ranges) or 1.0
    x, y = ((low + high) / 2 for low, high in ranges)
    return (x - half, x + half), (y - half, y + half)


def crop(grid: Grid, x: Range, y: Range) -> Grid:
    """The values in a window and one step around it, so that levels are spent on what is seen."""
    columns, rows = _inside(grid[0], x), _inside(grid[1], y)
    z = [[grid[2][i][j] for j in columns] for i in rows]
    return [grid[0][j] for j in columns], [grid[1][i] for i in rows], z


def _inside(values: Numbers, limits: Range) -> list[int]:
    inside = [i for i, value in enumerate(values) if limits[0] <= value <= limits[1]]
    if not inside:
        return []
    return list(range(max(inside[0] - 1, 0), min(inside[-1] + 2, len(values))))


def directions(points: Iterable[Sequence[float]], length: float, label: str) -> Arrows | None:
    """Arrows of one length against (dx, dy) at (x, y), where they do not cover one another."""
    kept: list[tuple[float, float, float, float]] = []
    for x, y, dx, dy in points:
        size = math.hypot(dx, dy)
        far = all(math.hypot(x - a, y - b) > 0.7 * length for a, b, *_ in kept)
        if far and math.isfinite(x + y) and 0 < size < math.inf:
            kept.append((x, y, -length * dx / size, -length * dy / size))
    x, y, dx, dy = ([arrow[i] for arrow in kept] for i in range(4))
    return Arrows(x, y, dx, dy, label, TEAL) if kept else None
