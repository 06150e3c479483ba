"""Seconds to a good answer: a panel for each problem, a bar for each method."""

from math import isfinite
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from bilevax._pictures.palette import BLUE, GREEN, INK, MUTED, ORANGE, PURPLE, RED, Colour

from ..peers.figures import DPI
from ..peers.style import dress
from .table import Line, lines

FAMILIES = {  # how a name begins: whose colour it has
    "bilevax": BLUE, "jaxopt": GREEN, "SOBA": ORANGE, "AmIGO": ORANGE, "stocBiO": ORANGE,
    "F2SA": PURPLE, "BOME": PURPLE, "TorchOpt": RED, "higher": RED, "hypertorch": RED,
}  # fmt: skip
SHOWN = 12
"""Bars of a panel: those that are there first, or come nearest."""


def colour(name: str) -> Colour:
    return next((c for start, c in FAMILIES.items() if name.startswith(start)), MUTED)


def panel(axes: Axes, title: str, rows: list[Line]) -> None:
    """The quickest on top; who did not come to the target says how near."""
    rows = [row for row in rows if isfinite(row.above)]
    shown = sorted(rows, key=lambda row: (row.seconds, row.above))[:SHOWN][::-1]
    longest = max(row.seconds for row in shown if isfinite(row.seconds))
    for y, row in enumerate(shown):
        there = isfinite(row.seconds)
        end = row.seconds if there else 0
        axes.barh(y, end, color=colour(row.name).light)
        axes.annotate(
            f"{row.seconds:.2g}" if there else f"{row.above:+.0%}", (end, y), (3, 0),
            textcoords="offset points", va="center", fontsize=8,
            color=INK.light if there else MUTED.light,
        )  # fmt: skip
    axes.set_yticks(range(len(shown)), [row.name for row in shown])
    axes.set_xlim(0, 1.2 * longest)
    dress(axes, title, "CPU seconds", "")
    axes.grid(visible=False, axis="y")
    for label, row in zip(axes.get_yticklabels(), shown, strict=True):
        label.set_color(colour(row.name).light)


def draw(out: Path) -> Path | None:
    found = lines(out)
    if not found:
        return None
    figure = Figure((10.5, 3.2 * ((len(found) + 1) // 2)), DPI, layout="constrained")
    panels = figure.subplots((len(found) + 1) // 2, 2, squeeze=False).ravel()
    for axes, (title, rows) in zip(panels, found.items(), strict=False):
        panel(axes, title, rows)
    for axes in panels[len(found) :]:
        axes.set_axis_off()
    FigureCanvasAgg(figure)
    path = out / "answer.png"
    figure.savefig(path, metadata={"Software": "bilevax benchmarks"})
    return path
