"""Charts for the page: drawn by plotly.js in the reader's browser."""

import html
import math

import plotly.graph_objects as go

from ._chart import Arrows, Axis, Chart, Contour, Series
from ._palette import CONTOUR, GRID, INK, MUTED, RED

HEIGHT = 380


def to_json(chart: Chart) -> str:
    """Data and layout, in the colours of a light page, safe inside a script element."""
    figure = go.Figure(_traces(chart), _layout(chart))
    text = figure.to_json(engine="json") or ""
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _traces(chart: Chart) -> list[go.Contour | go.Scatter]:
    traces: list[go.Contour | go.Scatter] = []
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


def _layout(chart: Chart) -> go.Layout:
    shapes = []
    if chart.level is not None:
        line = {"color": RED.light, "width": 1, "dash": "dot"}
        shapes = [{"type": "line", "xref": "paper", "x0": 0, "x1": 1, "line": line}]
        shapes[0] |= {"y0": chart.level, "y1": chart.level}
    y = _axis(chart.y) | ({"scaleanchor": "x", "constrain": "domain"} if chart.equal else {})
    x = _axis(chart.x) | ({"constrain": "domain"} if chart.equal else {})
    return go.Layout(
        height=HEIGHT, xaxis=x, yaxis=y, shapes=shapes, showlegend=chart.legend_is_shown,
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
