"""Invented characters, drawn on the spot: a stand-in for Omniglot that needs no files."""

import numpy as np

POINTS = 24
"""Dots of a stroke."""


def load(
    characters: int = 120,
    drawings: int = 20,
    size: int = 28,
    *,
    wobble: float = 0.04,
    seed: int = 0,
) -> np.ndarray:
    """Characters of two or three curved strokes, each drawn several times by an unsteady hand.

    **Arguments:**

    - `characters`, `drawings`: how many, and how often each is drawn.
    - `size`: the side of an image.
    - `wobble`: how far the hand goes astray, in sides of an image.
    - `seed`: another seed gives other characters.

    **Returns:**

    Images `(characters, drawings, size, size)`, uint8, ink 255 on 0, as those of Omniglot.

    !!! example

        >>> from bilevax.paper import data
        >>> data.glyphs.load(characters=3, drawings=2).shape
        (3, 2, 28, 28)
    """
    rng = np.random.default_rng(seed)
    return np.stack([_character(rng, drawings, size, wobble) for _ in range(characters)])


def _character(rng: np.random.Generator, drawings: int, size: int, wobble: float) -> np.ndarray:
    """Strokes are parabolas through three points; a drawing moves the points, and the whole."""
    plan = rng.uniform(0.15, 0.85, (1, rng.integers(2, 4), 3, 2))
    hand = rng.normal(0, wobble, (drawings, plan.shape[1], 3, 2))
    shift = rng.normal(0, wobble, (drawings, 1, 1, 2))
    t = np.linspace(0, 1, POINTS)
    weights = np.stack([(1 - t) ** 2, 2 * t * (1 - t), t**2])
    dots = np.einsum("pt,dspc->dstc", weights, plan + hand + shift)
    return np.stack([_ink(drawing.reshape(-1, 2), size) for drawing in dots])


def _ink(dots: np.ndarray, size: int) -> np.ndarray:
    """Black within a pen's width of a dot, and fading over a pixel."""
    grid = (np.arange(size) + 0.5) / size
    squares = [(grid[None] - dots[:, i, None]) ** 2 for i in (0, 1)]
    distance = np.sqrt((squares[0][:, :, None] + squares[1][:, None, :]).min(0)) * size
    pen = size / 22
    return np.round(255 * np.clip(pen + 0.5 - distance, 0, 1)).astype(np.uint8)
