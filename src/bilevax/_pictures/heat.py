"""A matrix with names as a heat map, on matplotlib's axes."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm
from numpy.typing import ArrayLike

from .palette import INK, MUTED

FEW = 30
"""Names for which one side has room."""


def heat(
    axes: Axes, rows: Sequence[str], columns: Sequence[str], z: ArrayLike, label: str, log: bool
) -> None:
    """Values z[i][j] of rows and columns with names, and a scale beside them; nan is left blank."""
    z = np.ma.masked_invalid(np.asarray(z, float))
    z = np.ma.masked_less_equal(z, 0) if log else z
    _names(axes, rows, columns)
    if z.mask.all():
        return
    norm = LogNorm(z.min(), z.max()) if log and z.min() < z.max() else None
    scale(axes, axes.imshow(z, cmap="viridis", norm=norm), label)


def _names(axes: Axes, rows: Sequence[str], columns: Sequence[str]) -> None:
    """Names of rows and columns; of many, every other one on the opposite side."""
    few = len(rows) <= FEW
    stride = 1 if few else 2
    places = [axes] if few else [axes, axes.secondary_xaxis("top"), axes.secondary_yaxis("right")]
    for place in places:
        place.tick_params(length=0, labelsize=9, pad=2, colors=MUTED.light)
    where = lambda names, first: (
        range(first, len(names), stride), [plain(name) for name in names[first::stride]]
    )  # fmt: skip
    axes.set_xticks(*where(columns, 0), rotation=90)
    axes.set_yticks(*where(rows, 0))
    if not few:
        places[1].set_xticks(*where(columns, 1), rotation=90)
        places[2].set_yticks(*where(rows, 1))


def scale(axes: Axes, drawn: Any, label: str) -> None:
    """The colours and their values, beside the axes."""
    figure = axes.get_figure()
    assert figure is not None
    bar = figure.colorbar(drawn, ax=axes, pad=0.02, aspect=30)
    bar.outline.set_visible(False)  # pyright: ignore[reportCallIssue]
    bar.ax.tick_params(which="both", colors=MUTED.light, labelsize=9, length=0)
    bar.set_label(plain(label), color=INK.light, fontsize=9)


def plain(text: str) -> str:
    """matplotlib reads what stands between dollars as mathematics; here there is none."""
    return text.replace("$", r"\$")
