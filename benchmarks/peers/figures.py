"""Figures from records, in the style of `bilevax.paper.report`."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullLocator

from bilevax._pictures.palette import BLUE, INK

from . import records
from .libraries import LIBRARIES
from .scatter import EXACT, error_and_time
from .style import LOOK, dress, legend

DPI = 180
Row = dict[str, Any]


def measured(out: Path) -> list[Row]:
    return [row for row in records.rows(out, "times") if row.get("status") == "measured"]


def weighed(out: Path) -> list[Row]:
    """What was measured of memory, in the order of the libraries."""
    rows = [row for row in records.rows(out, "memory") if row["status"] == "measured"]
    return sorted(rows, key=lambda row: list(LIBRARIES).index(row["library"]))


def wrong(out: Path) -> Callable[[str, str, str], bool]:
    """(library, problem, want) -> whether it gave other numbers; all truncations are alike."""
    found = [row for row in records.rows(out, "agreement") if row["status"] == "differs"]
    bad = {(row["library"], row["problem"], kind(row["want"])) for row in found}
    return lambda library, problem, want: (library, problem.split(", T =")[0], kind(want)) in bad


def kind(want: str) -> str:
    return "K" if want.startswith("K=") else want


def picture(out: Path) -> Figure:
    """Relative error of the hypergradient against its time."""
    figure = Figure((10.5, 4.4), DPI, layout="constrained")
    panels = figure.subplots(1, 2)
    for axes, problem in zip(panels, ("hypercleaning", "MLP, Adam"), strict=True):
        rows = [row for row in measured(out) if row["problem"] == problem]
        error_and_time(axes, rows, lambda row: row["library"] == "bilevax")
        T = rows[0]["T"] if rows else 0
        dress(axes, f"{problem}, T = {T}", "milliseconds", "error of the hypergradient")
    legend(figure, panels)
    return figure


def title(row: Row) -> str:
    return row["problem"] if row["problem"] != "toy" else f"toy, T = {row['T']}"


def ratios(out: Path) -> dict[tuple[str, str], dict[str, float]]:
    """(problem, want) -> library -> its time over that of bilevax."""
    found: dict[tuple[str, str], dict[str, float]] = {}
    for row in measured(out):
        found.setdefault((title(row), row["want"]), {})[row["library"]] = row["ms"]
    compared = {key: by for key, by in found.items() if "bilevax" in by and len(by) > 1}
    return {
        key: {library: ms / by["bilevax"] for library, ms in by.items()}
        for key, by in compared.items()
    }


def bars(axes: Axes, by: dict[str, float], bad: Callable[[str], bool]) -> None:
    """One bar a library, with its number; hatched if its numbers are others."""
    names = [name for name in reversed(LIBRARIES) if name in by]
    for y, name in enumerate(names):
        hatch = "////" if bad(name) else None
        colour = LOOK[name][0].light
        axes.barh(y, by[name], color="white" if hatch else colour, edgecolor=colour, hatch=hatch)
        number = f"{by[name]:.0f}" if by[name] >= 1000 else f"{by[name]:.3g}"
        text = number + (", wrong" if hatch else "")
        axes.annotate(
            text, (by[name], y), (3, 0), textcoords="offset points", va="center", fontsize=8,
            color=INK.light, bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.8},
        )  # fmt: skip
    axes.set_yticks(range(len(names)), names)
    axes.set_xlim(0, 1.3 * max(by.values()))


def time_ratios(out: Path) -> Figure:
    """Time over that of bilevax, by problem, for all steps and for a truncation."""
    found = {key: by for key, by in ratios(out).items() if kind(key[1]) in ("full", "K")}
    plain = [key for key in found if not key[0].startswith("toy")]
    shown = [key for key in plain if key[1] in ("full", "K=5", "K=10")] or list(found)
    figure = Figure((10.5, 2.5 * max((len(shown) + 1) // 2, 1)), DPI, layout="constrained")
    panels = figure.subplots(max((len(shown) + 1) // 2, 1), 2, squeeze=False).ravel()
    bad = wrong(out)
    for axes, key in zip(panels, shown, strict=False):
        bars(axes, found[key], lambda name, key=key: bad(name, *key))
        axes.axvline(1, color=BLUE.light, lw=0.9, ls=":", zorder=0)
        dress(axes, f"{key[0]}, {key[1]}", "time / bilevax", "")
        axes.grid(visible=False, axis="y")
    for axes in panels[len(shown) :]:
        axes.set_axis_off()
    return figure


def memory(axes: Axes, rows: Sequence[Row]) -> None:
    """What a computation adds to its process, against T."""
    lines: dict[tuple[str, str], list[tuple[int, float]]] = {}
    for row in rows:
        at = lines.setdefault((row["library"], row["want"]), [])
        at.append((row["T"], max(row["added_bytes"], 1e5) / 1e6))
    style = {"full": "-", "checkpointed": "--", "K=5": ":"}
    for (library, want), points in lines.items():
        (x, y), (colour, marker) = zip(*sorted(points), strict=True), LOOK[library]
        axes.plot(
            x, y, style.get(want, "-."), marker=marker, color=colour.light, lw=1.7, markersize=4,
            label=f"{library}: {want}",
        )  # fmt: skip
    axes.set_xscale("log")
    axes.set_yscale("log")
    horizons = sorted({row["T"] for row in rows})
    axes.set_xticks(horizons, map(str, horizons))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(FuncFormatter(lambda y, _: f"{y:g}"))
    dress(axes, "hypercleaning: peak memory of one hypergradient", "T", "MB")


def memory_of(out: Path) -> Figure:
    figure = Figure((8.4, 4.4), DPI, layout="constrained")
    axes = figure.add_subplot()
    memory(axes, weighed(out))
    legend(figure, [axes])
    return figure


RULES = {
    "full": "all 100 steps", "Krylov(4, 8)": "Krylov(4, 8)", "Krylov(1, 10)": "Krylov(1, 10)",
    "K=50": "last 50 steps", "K=25": "last 25 steps", "K=5": "last 5 steps",
}  # fmt: skip
"""The rules of the figure in README, as it calls them, the most accurate first."""


def rules(axes: Axes, rows: Sequence[Row]) -> None:
    """One bar a rule of bilevax: its time, and how far its hypergradient is off."""
    own = {row["want"]: row for row in rows if row["library"] == "bilevax"}
    names = [want for want in reversed(RULES) if want in own]
    for y, want in enumerate(names):
        ms, error = own[want]["ms"], own[want]["error"]
        off = "exact" if error < EXACT / 100 else f"{100 * error:.2g} % off"
        axes.barh(y, ms, color=BLUE.light)
        axes.annotate(
            off, (ms, y), (3, 0), textcoords="offset points", va="center", fontsize=8,
            color=INK.light,
        )  # fmt: skip
    axes.set_yticks(range(len(names)), [RULES[want] for want in names])
    axes.set_xlim(0, 1.35 * max((row["ms"] for row in own.values()), default=1))


def for_readme(out: Path) -> Figure:
    """Three panels that can be read when they are 900 pixels wide."""
    figure = Figure((10.5, 3.0), DPI, layout="constrained")
    left, middle, right = figure.subplots(1, 3)
    by, bad = ratios(out).get(("hypercleaning", "full")), wrong(out)
    if by:
        bars(left, by, lambda name: bad(name, "hypercleaning", "full"))
        dress(left, "The exact hypergradient: time", "time / time of bilevax", "")
    full = [row for row in weighed(out) if (row["T"], row["want"]) == (100, "full")]
    weight = {row["library"]: row["added_bytes"] / 1e6 for row in full}
    if weight:
        bars(middle, weight, lambda name: bad(name, "hypercleaning", "full"))
        middle.set_xscale("log")
        middle.set_xlim(1, 8 * max(weight.values()))
        dress(middle, "and its peak memory", "MB", "")
        middle.set_yticklabels([])
    rules(right, [row for row in measured(out) if row["problem"] == "hypercleaning"])
    dress(right, "Cheaper rules of bilevax", "milliseconds", "")
    for axes in (left, middle, right):
        axes.grid(visible=False, axis="y")
    return figure


FIGURES = {
    "error-time": picture,
    "time-ratios": time_ratios,
    "memory": memory_of,
    "readme": for_readme,
}


def draw(out: Path) -> list[Path]:
    """All figures for which there are records, as PNG files beside them."""
    paths = []
    for name, make in FIGURES.items():
        needs = "memory" if name == "memory" else "times"
        if not any(row.get("status") == "measured" for row in records.rows(out, needs)):
            continue
        figure = make(out)
        FigureCanvasAgg(figure)
        paths.append(out / f"{name}.png")
        figure.savefig(paths[-1], metadata={"Software": "bilevax benchmarks"})
    return paths
