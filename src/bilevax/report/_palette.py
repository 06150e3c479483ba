"""Colours, each for a light and for a dark page; all of them told apart by the colour-blind."""

from typing import NamedTuple

from plotly.colors import sample_colorscale, unlabel_rgb


class Colour(NamedTuple):
    """A colour on white, and the one that stands for it on black."""

    light: str
    dark: str


INK = Colour("#1f2328", "#e4e6ea")
MUTED = Colour("#6b7280", "#9aa2af")
GRID = Colour("#e6e8eb", "#2c3038")
CONTOUR = Colour("#c3c8d0", "#474d58")
RED = Colour("#d1242f", "#ff6b6b")
BLUE = Colour("#0a63b0", "#6cb6ff")
ORANGE = Colour("#c2560c", "#ffa657")
PINK = Colour("#b3408e", "#f59bd8")
BROWN = Colour("#7a5c2e", "#d8b98a")

OTHERS = (ORANGE, PINK, BROWN, RED)
"""For what has no place on a scale."""

STEPS = 40


def shade(position: float) -> Colour:
    """A place on a scale from 0 to 1: viridis, without the end that the page would swallow."""
    position = round(position * STEPS) / STEPS
    return Colour(_viridis(0.82 * position), _viridis(0.38 + 0.62 * position))


def _viridis(position: float) -> str:
    rgb = unlabel_rgb(sample_colorscale("Viridis", [position])[0])
    return "#" + "".join(f"{round(part):02x}" for part in rgb)


PLAIN = (INK, MUTED, GRID, CONTOUR, RED, BLUE, ORANGE, PINK, BROWN)


def pairs() -> dict[str, str]:
    """Light to dark, of every colour there is."""
    return dict([*PLAIN, *(shade(i / STEPS) for i in range(STEPS + 1))])
