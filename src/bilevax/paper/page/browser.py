"""Charts for the page: drawn by plotly.js in the reader's browser."""

import html
import math
from collections.abc import Sequence

import plotly.graph_objects as go

from ..._pictures.heat import FEW
from ..._pictures.palette import CONTOUR, GRID, INK, MUTED, RED
from .chart import Arrows, Axis, Chart, Contour, HeatMap, Numbers, Series

HEIGHT = 380


def to_json(chart: Chart) -> str:
    """Data and layout, in the colours of a light page, safe inside a script element."""
    figure = go.Figure(_traces(chart), _layout(chart))
    text = figure.to_json(engine="json") or ""
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


Trace = go.Contour | go.Heatmap | go.Scatter


def _traces(chart: Chart) -> list[Trace]:
    traces: list[Trace] = []
    if chart.heat:
        traces.append(_heat(chart.heat))
    if chart.contour:
        traces.append(_contour(chart.contour, chart))
    for series in chart.series:
        traces += [*_band(series), _line(series, chart)]
    if chart.arrows:
        traces.append(_arrows(chart.arrows))
    return traces


def _line(series: Series, chart: Chart) -> go.Scatter:
    x, y = chart.drawn(series)
    mode = ("lines" if series.line else "") + ("+markers" if series.mark else "")
    size, symbol = {"": (0, None), "dot": (4, None), "cross": (12, "x")}[series.mark]
    return go.Scatter(
        x=x, y=y, name=_text(series.label), mode=mode.strip("+"),
        showlegend=bool(series.label), legendgroup=_text(series.label),
        line={"color": series.colour.light, "width": 2, "dash": "dash" if series.dashed else None},
        marker={"color": series.colour.light, "size": size, "symbol": symbol},
        hovertemplate=f"{_text(chart.x.label)} %{{x:.4~g}}<br>{_text(chart.y.label)} %{{y:.4~g}}",
    )  # fmt: skip


def _band(series: Series) -> list[go.Scatter]:
    if series.low is None or series.high is None:
        return []
    there = [i for i, (a, b) in enumerate(zip(series.low, series.high, strict=True)) if a <= b]
    x, back = [series.x[i] for i in there], there[::-1]
    band = go.Scatter(
        x=x + x[::-1], y=[series.low[i] for i in there] + [series.high[i] for i in back],
        fill="toself", fillcolor=series.colour.light, opacity=0.18, mode="none",
        hoverinfo="skip", showlegend=False, legendgroup=_text(series.label),
    )  # fmt: skip
    return [band]


def _arrows(arrows: Arrows) -> go.Scatter:
    """Lines of two points with a gap between them; the second point is the head."""
    x, y = [], []
    for a, b, da, db in zip(arrows.x, arrows.y, arrows.dx, arrows.dy, strict=True):
        x += [a, a + da, None]
        y += [b, b + db, None]
    return go.Scatter(
        x=x, y=y, name=_text(arrows.label), mode="lines+markers", hoverinfo="skip",
        line={"color": arrows.colour.light, "width": 1.8},
        marker={
            "color": arrows.colour.light, "symbol": "arrow", "angleref": "previous",
            "size": [0, 10, 0] * len(arrows.x), "opacity": 1,
        },
    )  # fmt: skip


def _contour(contour: Contour, chart: Chart) -> go.Contour:
    common = {"x": contour.x, "y": contour.y, "z": contour.z, "ncontours": contour.levels}
    if not contour.filled:
        lines = {"contours_coloring": "none", "line": {"color": CONTOUR.light, "width": 1}}
        return go.Contour(**common, **lines, showscale=False, showlegend=False, hoverinfo="skip")
    return go.Contour(
        **common, colorscale="Viridis", line={"width": 0},
        colorbar={"thickness": 12, "outlinewidth": 0, "tickfont": {"color": MUTED.light}},
        hovertemplate=f"{_text(chart.x.label)} %{{x:.3~g}}<br>{_text(chart.y.label)} %{{y:.3~g}}"
        "<br>%{z:.4~g}<extra></extra>",
    )  # fmt: skip


def _heat(heat: HeatMap) -> go.Heatmap:
    """Cells at whole numbers, which the axes call by name: names need not differ."""
    z = [[_place(heat, value) for value in row] for row in heat.z]
    words = [
        [[_text(a), _text(b), f"{v:.3g}"] for b, v in _named(heat, row)] for a, row in _rows(heat)
    ]
    return go.Heatmap(
        z=z, customdata=words, colorscale="Viridis", hoverongaps=False,
        colorbar={
            "thickness": 12, "outlinewidth": 0, "tickfont": {"color": MUTED.light},
            "title": {"text": _text(heat.label), "side": "right"}, **_decades(z, heat.log),
        },
        hovertemplate="%{customdata[0]} – %{customdata[1]}<br>%{customdata[2]}<extra></extra>",
    )  # fmt: skip


def _rows(heat: HeatMap):
    return zip(heat.rows, heat.z, strict=True)


def _named(heat: HeatMap, row: Numbers):
    return zip(heat.columns, row, strict=True)


def _place(heat: HeatMap, value: float) -> float | None:
    """Where a value lies on the scale of colours."""
    if not math.isfinite(value) or (heat.log and value <= 0):
        return None
    return math.log10(value) if heat.log else value


def _decades(z: list[list[float | None]], log: bool) -> dict:
    """Names of the powers of ten, which plotly's colours do not know."""
    there = [value for row in z for value in row if value is not None]
    if not (log and there):
        return {}
    ticks = list(range(math.ceil(min(there)), math.floor(max(there)) + 1))
    return {"tickvals": ticks, "ticktext": [f"{10.0**k:g}" for k in ticks]} if ticks else {}


def _names(names: Sequence[str]) -> dict:
    font = {"color": MUTED.light, "size": 12 if len(names) <= FEW else 9}
    return {
        "tickmode": "array", "tickvals": list(range(len(names))), "showgrid": False,
        "ticktext": [_text(name) for name in names], "tickfont": font,
    }  # fmt: skip


def _layout(chart: Chart) -> go.Layout:
    shapes = []
    if chart.level is not None:
        line = {"color": RED.light, "width": 1, "dash": "dot"}
        shapes = [{"type": "line", "xref": "paper", "x0": 0, "x1": 1, "line": line}]
        shapes[0] |= {"y0": chart.level, "y1": chart.level}
    y = _axis(chart.y) | ({"scaleanchor": "x", "constrain": "domain"} if chart.equal else {})
    x = _axis(chart.x) | ({"constrain": "domain"} if chart.equal else {})
    height = HEIGHT
    if chart.heat:
        x |= _names(chart.heat.columns) | {"constrain": "domain", "tickangle": -90}
        y |= _names(chart.heat.rows) | {"autorange": "reversed", "scaleanchor": "x"}
        y |= {"constrain": "domain"}
        height = max(HEIGHT, 12 * len(chart.heat.rows))
    return go.Layout(
        height=height, xaxis=x, yaxis=y, shapes=shapes, showlegend=chart.legend_is_shown,
        paper_bgcolor="rgba(0,0,0,0)", plot_bgcolor="rgba(0,0,0,0)",
        font={"color": INK.light, "size": 13, "family": "system-ui, sans-serif"},
        margin={"l": 12, "r": 12, "t": 12, "b": 12}, hovermode="closest",
        legend={
            "orientation": "h", "x": 0, "y": 1.02, "yanchor": "bottom", "font": {"size": 12},
            "title": {"text": _text(chart.legend)}, "bgcolor": "rgba(0,0,0,0)",
        },
    )  # fmt: skip


def _axis(axis: Axis) -> dict:
    common = {
        "title": {"text": _text(axis.label), "standoff": 8}, "automargin": True,
        "gridcolor": GRID.light, "zeroline": False, "linecolor": GRID.light, "showline": True,
        "tickfont": {"color": MUTED.light, "size": 10 if axis.log else 12}, "range": _range(axis),
    }  # fmt: skip
    return common | ({"type": "log", "exponentformat": "power", "nticks": 6} if axis.log else {})


def _range(axis: Axis) -> list[float] | None:
    """On a logarithmic axis plotly wants exponents."""
    if axis.limits is None:
        return None
    return [math.log10(limit) if axis.log else limit for limit in axis.limits]


def _text(text: str) -> str:
    """plotly reads tags, $mathematics$ and %{templates} in text; here there are none."""
    text = html.escape(text, quote=False)
    return text.replace("$", "&#36;").replace("%{", "%&#123;")
