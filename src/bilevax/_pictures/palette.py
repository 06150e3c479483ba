"""Colours, each for a light and for a dark page; all of them told apart by the colour-blind."""

from typing import NamedTuple

import numpy as np


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
TEAL = Colour("#00857a", "#4fd1c5")
GREEN = Colour("#4d8b31", "#9ad67a")
PURPLE = Colour("#6f3fb0", "#c09bff")
PINK = Colour("#c43c8e", "#ff92cd")
GOLD = Colour("#8f6b00", "#e0bd4a")

OTHERS = (TEAL, GREEN, BLUE, MUTED)
"""For what has no place on a scale."""

STEPS = 40
PLASMA = (
    "0d0887", "46039f", "7201a8", "9c179e", "bd3786", "d8576b", "ed7953", "fb9f3a", "fdca26",
    "f0f921",
)  # fmt: skip


def shade(position: float) -> Colour:
    """A place on a scale from 0 to 1: plasma, without the end that the page would swallow."""
    position = round(position * STEPS) / STEPS
    return Colour(_plasma(0.8 * position), _plasma(0.34 + 0.66 * position))


def _plasma(position: float) -> str:
    places = np.linspace(0, 1, len(PLASMA))
    parts = zip(*map(bytes.fromhex, PLASMA), strict=True)
    return "#" + "".join(f"{round(np.interp(position, places, part)):02x}" for part in parts)


PLAIN = (INK, MUTED, GRID, CONTOUR, RED, BLUE, ORANGE, TEAL, GREEN, PURPLE, PINK, GOLD)


def pairs() -> dict[str, str]:
    """Light to dark, of every colour there is."""
    return dict([*PLAIN, *(shade(i / STEPS) for i in range(STEPS + 1))])
