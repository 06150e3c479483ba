"""Seconds to a good answer: a panel for each problem, a bar for each method."""

from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullLocator

from bilevax._pages.palette import BLUE, GREEN, INK, MUTED, ORANGE, PURPLE, RED, Colour

from ..peers.figures import DPI
from ..peers.style import dress
from .table import Line, lines

FAMILIES = {  # how a name begins: whose colour it has
    "bilevax": BLUE, "jaxopt": GREEN, "SOBA": ORANGE, "AmIGO": ORANGE, "stocBiO": ORANGE,
    "F2SA": PURPLE, "BOME": PURPLE, "TorchOpt": RED, "higher": RED, "hypertorch": RED,
}  # fmt: skip
SHOWN = 12
"""Bars of a panel: the first there."""


def colour(name: str) -> Colour:
    return next((c for start, c in FAMILIES.items() if name.startswith(start)), MUTED)


def panel(axes: Axes, title: str, rows: list[Line]) -> None:
    """The quickest on top; who did not come to the target says how near."""
    there = sorted((r for r in rows if r.seconds is not None), key=lambda r: r.seconds or 0)
    rest = sorted((r for r in rows if r.seconds is None and r.above is not None), key=_above)
    shown = [*there, *rest][:SHOWN][::-1]
    low = min((r.seconds or 1 for r in there), default=1) / 3
    high = 4 * max((r.seconds or 0 for r in there), default=1)
    for y, row in enumerate(shown):
        if row.seconds is not None:
            axes.barh(y, row.seconds - low, left=low, color=colour(row.name).light)
        says = f"{row.seconds:.2g} s" if row.seconds is not None else f"not: {_above(row):+.0%}"
        axes.annotate(
            says, (row.seconds or low, y), (3, 0), textcoords="offset points", va="center",
            fontsize=8, color=INK.light if row.seconds is not None else MUTED.light,
        )  # fmt: skip
    axes.set_yticks(range(len(shown)), [row.name for row in shown])
    axes.set_xscale("log")
    axes.set_xlim(low, high)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:g}"))
    axes.xaxis.set_minor_locator(NullLocator())
    dress(axes, title, "seconds to within 1 % of the best loss", "")
    axes.grid(visible=False, axis="y")
    for label, row in zip(axes.get_yticklabels(), shown, strict=True):
        label.set_color(colour(row.name).light)


def _above(row: Line) -> float:
    return row.above if row.above is not None else float("inf")


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
