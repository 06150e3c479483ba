"""Charts as files: the same descriptions, drawn by matplotlib on white."""

import io

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from ..._pictures.heat import FEW, heat, plain, scale
from ..._pictures.palette import CONTOUR, GRID, INK, MUTED, RED
from .chart import Arrows, Axis, Chart, Contour, Series

SIZE, DPI = (5.2, 4.0), 180


def png(chart: Chart) -> bytes:
    """A chart as a PNG file."""
    figure = Figure(_size(chart), DPI, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    if chart.heat:
        h = chart.heat
        heat(axes, h.rows, h.columns, h.z, h.label, h.log)
    if chart.contour:
        _contour(axes, chart.contour)
    for series in chart.series:
        _series(axes, series, chart)
    if chart.arrows:
        _arrows(axes, chart.arrows)
    _dress(axes, chart)
    data = io.BytesIO()
    figure.savefig(data, format="png", metadata={"Software": "bilevax report"})
    return data.getvalue()


def _size(chart: Chart) -> tuple[float, float]:
    """Room for the names of a heat map; else as ever."""
    side = 0.075 * len(chart.heat.rows) + 2 if chart.heat else 0.0
    return max(SIZE[0], side + 0.8), max(SIZE[1], side)


def _series(axes: Axes, series: Series, chart: Chart) -> None:
    x, y = chart.drawn(series)
    marks = {"": {}, "dot": {"marker": "o", "markersize": 2.6}}
    marks["cross"] = {"marker": "X", "markersize": 10, "markeredgecolor": "white"}
    style = ("--" if series.dashed else "-") if series.line else "none"
    (line,) = axes.plot(x, y, ls=style, color=series.colour.light, lw=1.7, **marks[series.mark])
    line.set_zorder(4 if series.mark == "cross" else 2)
    line.set_label(plain(series.label) or "_")
    if series.low is not None and series.high is not None:
        colour = series.colour.light
        axes.fill_between(x, series.low, series.high, color=colour, alpha=0.18, lw=0)


def _arrows(axes: Axes, arrows: Arrows) -> None:
    axes.quiver(
        arrows.x, arrows.y, arrows.dx, arrows.dy, angles="xy", scale_units="xy", scale=1,
        color=arrows.colour.light, width=0.006, headwidth=4, zorder=3,
    )  # fmt: skip
    sign = {"marker": "$\\rightarrow$", "ls": "none", "markersize": 13}
    axes.plot([], [], color=arrows.colour.light, label=plain(arrows.label), **sign)


def _contour(axes: Axes, contour: Contour) -> None:
    z = np.ma.masked_invalid(np.asarray(contour.z, float))
    if z.mask.all() or min(z.shape) < 2:
        return
    if not contour.filled:
        colour = CONTOUR.light
        axes.contour(contour.x, contour.y, z, contour.levels, colors=colour, linewidths=0.7)
        return
    scale(axes, axes.contourf(contour.x, contour.y, z, contour.levels, cmap="viridis"), "")


def _dress(axes: Axes, chart: Chart) -> None:
    _title(axes, chart)
    _axis(axes.xaxis, axes.set_xscale, axes.set_xlim, chart.x)
    _axis(axes.yaxis, axes.set_yscale, axes.set_ylim, chart.y)
    if chart.level is not None:
        axes.axhline(chart.level, color=RED.light, lw=0.9, ls=":", zorder=1)
    if chart.equal:
        axes.set_aspect("equal", adjustable="box")
    if not (chart.heat or (chart.contour and chart.contour.filled)):
        axes.grid(color=GRID.light, lw=0.7)
        axes.set_axisbelow(True)
    for spine in axes.spines.values():
        spine.set_color(GRID.light)
    axes.tick_params(which="both", colors=MUTED.light, length=0)
    if not chart.heat:
        axes.tick_params(which="both", labelsize=9)
    if chart.legend_is_shown:
        _legend(axes, chart)


def _title(axes: Axes, chart: Chart) -> None:
    """Above the axes; above their names too, where these are on all sides."""
    text, look = plain(chart.title), {"fontsize": 11, "color": INK.light}
    if chart.heat and len(chart.heat.rows) > FEW:
        figure = axes.get_figure()
        assert isinstance(figure, Figure)
        figure.suptitle(text, x=0.01, ha="left", **look)
    else:
        axes.set_title(text, loc="left", pad=10, **look)


def _axis(axis, set_scale, set_limits, wanted: Axis) -> None:
    axis.set_label_text(plain(wanted.label), color=INK.light, fontsize=10)
    if wanted.log:
        set_scale("log")
    if wanted.limits:
        set_limits(*wanted.limits)


def _legend(axes: Axes, chart: Chart) -> None:
    """Beside the axes, never on the data."""
    axes.legend(
        loc="upper left", bbox_to_anchor=(1.01, 1.0), borderaxespad=0, frameon=False, fontsize=9,
        title=plain(chart.legend), title_fontsize=9, alignment="left", labelcolor=INK.light,
    )  # fmt: skip
