"""How a library looks in every figure; axes and legends in the style of `bilevax.paper.report`."""

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from bilevax._pictures.palette import (
    BLUE,
    GOLD,
    GREEN,
    GRID,
    INK,
    MUTED,
    ORANGE,
    PINK,
    PURPLE,
    RED,
    TEAL,
)

LOOK = {
    "bilevax": (BLUE, "o"),
    "plain JAX": (TEAL, "s"),
    "plain JAX, checkpoint": (PURPLE, "D"),
    "jaxopt": (GREEN, "^"),
    "optimistix": (GOLD, "v"),
    "plain PyTorch": (ORANGE, "s"),
    "higher": (RED, "^"),
    "TorchOpt": (PINK, "v"),
    "BOAT": (MUTED, "X"),
}


def dress(axes: Axes, title: str, x: str, y: str) -> None:
    axes.set_title(title, fontsize=11, loc="left", color=INK.light, pad=8)
    axes.set_xlabel(x, color=INK.light, fontsize=10)
    axes.set_ylabel(y, color=INK.light, fontsize=10)
    axes.grid(color=GRID.light, lw=0.7)
    axes.set_axisbelow(True)
    for spine in axes.spines.values():
        spine.set_color(GRID.light)
    axes.tick_params(which="both", colors=MUTED.light, length=0, labelsize=9)


def legend(figure: Figure, axes: Sequence[Axes]) -> None:
    """One for all axes, to the right of them."""
    seen = {label: h for a in axes for h, label in zip(*a.get_legend_handles_labels(), strict=True)}
    names = [name for name in LOOK if name in seen] + [name for name in seen if name not in LOOK]
    figure.legend(
        [seen[n] for n in names], names, loc="outside right upper", frameon=False, fontsize=9,
        labelcolor=INK.light, handletextpad=0.3,
    )  # fmt: skip
