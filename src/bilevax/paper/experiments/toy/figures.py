"""The toy problem (section 4.1): Figures 1 to 4 of the paper."""

import math
from collections.abc import Sequence

from ...._pictures.palette import BLUE, MUTED, ORANGE, RED
from ...page.chart import Axis, Chart, Contour, Series
from ...page.section import Section
from ...page.table import Column, Table
from ...records import Row, Run
from ...report.groups import ladder, suffix
from ...report.rows import integer, number, numbers, short
from .plane import Grid, crop, directions, window

NAMES = {"f": "f", "f~": "f̃"}
FILES = {"f": "f", "f~": "f-tilde"}
STEP = Axis("hyper-iteration")
LIMITS = {
    "f": "A straight fall on this scale is a geometric rate.",
    "f~": "A line that becomes level has a limit that is not the optimum.",
}
PULL = 5.0
"""f̃ is f and 5 |λ - (1, 0)|²."""


def sections(runs: Sequence[Run]) -> list[Section]:
    """Four figures and a table for each run."""
    several = len(runs) > 1
    return [s for i, run in enumerate(runs) for s in _Toy(run, suffix(i), several).sections()]


class _Toy:
    """One run, its Ks and their colours."""

    def __init__(self, run: Run, end: str, several: bool):
        self.run, self.end = run, end
        self.where = f" ({run.path.name})" if several else ""
        rows = run.of("iterate") + run.of("descent")
        self.colours = ladder({integer(row, "K") for row in rows})

    def sections(self) -> list[Section]:
        return [
            self._section(
                "Figure 1. The problem, and the error of truncation",
                "Two hyperparameters λ; f is measured after the inner loop has run its T steps.",
                [self.surface(), self.bias()],
            ),
            self._section(
                "Figure 2. Is the truncated gradient a descent direction?",
                "h is the truncated gradient. The charts show how much of the true gradient it "
                "keeps, along the run with K = 1. f depends on λ only through the inner loop: its "
                "ratio stays above 0 (Lemma 3.2). f̃ adds a term in λ: its ratio may be negative.",
                [self.ratio("f"), self.ratio("f~")],
            ),
            self._section(
                "Figure 3. f̃: a biased limit",
                "The term in λ moves the end of a truncated run away from the optimum.",
                self.convergence("f~"),
            ),
            self._section(
                "Figure 4. f: convergence",
                "Without the added term, theory promises every K the same end, by its own path.",
                [*self.convergence("f"), self.table()],
            ),
        ]

    def _section(self, title: str, text: str, items: Sequence[Chart | Table | None]) -> Section:
        there = tuple(item for item in items if item is not None)
        missing = () if len(there) == len(items) else ("Not all of it is recorded in this run.",)
        return Section(title + self.where, (text, *missing), there)

    def surface(self) -> Chart | None:
        grid = self.grid("f")
        return grid and Chart(
            f"toy-surface{self.end}", "The outer objective f",
            "The sine makes valleys and saddles. The inner loop stops early, which moves the "
            "optimum from the origin to the red X.",
            Axis("λ₁"), Axis("λ₂"), self.optimum("f", ""), Contour(*grid, filled=True, levels=40),
        )  # fmt: skip

    def bias(self) -> Chart | None:
        rows = sorted(self.run.of("bias"), key=lambda row: integer(row, "K"))
        K = [integer(row, "K") for row in rows]
        line = lambda key, *style: Series(K, _column(rows, key), *style)
        error, bound = line("bias", "error", BLUE), line("bound", "bound (10)", MUTED, True)
        limits = _decades([*error.y, *bound.y])
        return Chart(
            f"toy-bias{self.end}", "Error of the truncated gradient",
            "|h − df/dλ| at λ = (1, 1) and its bounds. (10) holds if the inner problem is convex "
            "everywhere, (9) if it is convex near its end. For small K (9) is above the chart.",
            Axis("K"), Axis("error", log=True, limits=limits),
            (bound, line("local_bound", "bound (9)", ORANGE, True), error),
        ) if rows else None  # fmt: skip

    def ratio(self, objective: str) -> Chart | None:
        name, series = NAMES[objective], self._by_K("descent", objective, "ratio")
        return Chart(
            f"toy-ratio-{FILES[objective]}{self.end}", f"Ratio for {name}",
            f"h · d{name}/dλ over |d{name}/dλ|². Above the dotted line h descends.",
            STEP, Axis("ratio"), series, level=0.0, legend="K",
        ) if series else None  # fmt: skip

    def convergence(self, objective: str) -> list[Chart | None]:
        name, file = NAMES[objective], FILES[objective] + self.end
        draw = lambda kind, key, title, caption, label: Chart(
            f"toy-{kind}-{file}", title, caption, STEP, Axis(label, log=True),
            self._by_K("iterate", objective, key), legend="K",
        )  # fmt: skip
        charts = [
            draw(
                "distance", "distance", f"Distance to the optimum of {name}",
                LIMITS[objective], "|λ − λ*|",
            ),
            draw(
                "gradient", "gradient_norm", f"The true gradient of {name}",
                "By full back-propagation, at the iterates of each K.", f"|d{name}/dλ|",
            ),
        ]  # fmt: skip
        return [self.trajectories(objective), *(c if c.series else None for c in charts)]

    def trajectories(self, objective: str) -> Chart | None:
        paths = [self._path(objective, K) for K in self.colours if self._iterates(objective, K)]
        if not paths:
            return None
        optimum, grid = self.optimum(objective), self.grid(objective)
        x, y = window([*paths, *optimum])
        arrows, caption = None, "One path for each K, all from one start."
        if objective == "f":
            keys = ("lam_1", "lam_2", "gradient_1", "gradient_2")
            points = [[number(row, k) for k in keys] for row in self._iterates(objective, 1)]
            arrows = directions(points, 0.1 * (y[1] - y[0]), "−df/dλ")
            caption += " Arrows, all of one length: against the true gradient, along K = 1."
        return Chart(
            f"toy-path-{FILES[objective]}{self.end}", f"Trajectories on {NAMES[objective]}",
            caption, Axis("λ₁", limits=x), Axis("λ₂", limits=y), (*paths, *optimum),
            Contour(*crop(grid, x, y)) if grid else None, arrows, equal=True, legend="K",
        )  # fmt: skip

    def table(self) -> Table | None:
        rows = []
        for objective, name in NAMES.items():
            for K in self.colours:
                rows += [_ends(name, str(K), row) for row in self._iterates(objective, K)[-1:]]
            there = self.run.of("optimum", objective=objective)
            rows += [_ends(name, "optimum", row) for row in there]
        heads = "K", "step", "λ₁", "λ₂", "value", "|λ − λ*|", "|gradient|"
        columns = (Column("objective", words=True), *map(Column, heads))
        title = "Where the trajectories end"
        return Table(f"toy-ends{self.end}", title, columns, tuple(rows)) if rows else None

    def grid(self, objective: str) -> Grid | None:
        rows = sorted(self.run.of("surface"), key=lambda row: number(row, "y"))
        own = [row for row in rows if row.get("objective", "f") == objective]
        if own:
            x, y = numbers(own[0], "x"), [number(row, "y") for row in own]
            return x, y, [numbers(row, "f") for row in own]
        if objective == "f" or (plain := self.grid("f")) is None:
            return None
        x, y, z = plain
        lift = lambda a, b: PULL * ((a - 1) ** 2 + b**2)
        return x, y, [[z[i][j] + lift(a, b) for j, a in enumerate(x)] for i, b in enumerate(y)]

    def optimum(self, objective: str, label: str = "optimum") -> tuple[Series, ...]:
        rows = self.run.of("optimum", objective=objective)
        x, y = _column(rows, "lam_1"), _column(rows, "lam_2")
        return (Series(x, y, label, RED, line=False, mark="cross"),) if rows else ()

    def _iterates(self, objective: str, K: int) -> list[Row]:
        return _in_order(self.run.of("iterate", objective=objective, K=K))

    def _path(self, objective: str, K: int) -> Series:
        rows = self._iterates(objective, K)
        x, y = _column(rows, "lam_1"), _column(rows, "lam_2")
        return Series(x, y, str(K), self.colours[K], mark="dot")

    def _by_K(self, kind: str, objective: str, key: str) -> tuple[Series, ...]:
        return tuple(
            Series([integer(row, "step") for row in rows], _column(rows, key), str(K), colour)
            for K, colour in self.colours.items()
            if (rows := _in_order(self.run.of(kind, objective=objective, K=K)))
        )


def _in_order(rows: list[Row]) -> list[Row]:
    return sorted(rows, key=lambda row: integer(row, "step"))


def _column(rows: Sequence[Row], key: str) -> list[float]:
    return [number(row, key) for row in rows]


def _decades(values: Sequence[float]) -> tuple[float, float] | None:
    """From the least positive value to the greatest, with a margin."""
    there = [value for value in values if 0 < value < math.inf]
    return (0.5 * min(there), 5 * max(there)) if there else None


def _ends(name: str, K: str, row: Row) -> tuple[str, ...]:
    place = [f"{number(row, key):.4f}" for key in ("lam_1", "lam_2", "value")]
    small = [f"{number(row, k):.2e}" if k in row else "" for k in ("distance", "gradient_norm")]
    return name, K, short(row.get("step", "")), *place, *small
