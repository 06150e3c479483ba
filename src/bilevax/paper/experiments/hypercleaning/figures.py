"""Data hypercleaning (section 4.2.1 and its appendix): Table 2, Figure 5, identification, cost."""

import math
from collections.abc import Sequence
from typing import Any

from ...._pictures.palette import BLUE, MUTED, ORANGE
from ...page.chart import Axis, Chart
from ...page.section import Section
from ...page.table import Column, Table, spread
from ...records import Row, Run
from ...report.groups import group, suffix
from ...report.seeds import Seeds
from .examples import cards, sentences

PAPER = {
    1: ("87.50", "89.32", "0.413", "0.85"),
    5: ("88.05", "89.90", "0.383", "0.89"),
    25: ("88.12", "89.94", "0.382", "0.89"),
    50: ("88.17", "90.18", "0.381", "0.89"),
    100: ("88.33", "90.24", "0.380", "0.88"),
}
"""Table 2: test accuracy, validation accuracy, validation loss, F1 at λ < -3."""

PAPER_F1 = {
    1: ("0.84", "0.84", "0.84"),
    5: ("0.89", "0.89", "0.90"),
    25: ("0.89", "0.89", "0.89"),
    50: ("0.89", "0.89", "0.89"),
    100: ("0.89", "0.89", "0.89"),
}
"""The appendix: λ < -4, -3, -1, after 150 hyper-iterations."""

QUALITY = [
    ("test acc. %", "test_accuracy", 100, 2),
    ("val. acc. %", "validation_accuracy", 100, 2),
    ("val. loss", "validation_loss", 1, 3),
    ("F1", "f1_3", 1, 3),
]
F1 = [("λ < −4", "f1_4", 1, 3), ("λ < −3", "f1_3", 1, 3), ("λ < −1", "f1_1", 1, 3)]
APPENDIX_STEP = 150
GREY = (
    "Grey columns are the paper's values, on MNIST with 5000 examples after 1000 hyper-iterations. "
)
STEP = Axis("hyper-iteration")


def sections(runs: Sequence[Run]) -> list[Section]:
    """Five sections for each group of runs that differ in nothing but seed and rules."""
    groups = group(runs)
    names = [_name(g[0]) for g in groups]
    if len(set(names)) < len(names):
        names = [g[0].path.name for g in groups]
    wheres = [f" ({name})" for name in names] if len(groups) > 1 else [""]
    parts = [_Cleaning(g, suffix(i), wheres[i]) for i, g in enumerate(groups)]
    return [section for part in parts for section in part.sections()]


def _name(run: Run) -> str:
    return f"{run.config.get('data', 'unknown data')}, {run.config.get('preset', 'own settings')}"


class _Cleaning:
    """One comparison of rules, over seeds."""

    def __init__(self, runs: Sequence[Run], end: str, where: str):
        self.config, self.end, self.where = runs[0].config, end, where
        self.seeds = Seeds(runs, self.config.get("T"))
        self.examples = [row for run in runs for row in run.of("examples")]

    def sections(self) -> list[Section]:
        if not self.seeds.rules:
            none = "No evaluation is recorded in these runs yet."
            return [Section(f"Data hypercleaning{self.where}", (none,))]
        return [
            self.found(), self.quality(), self.identification(), self.stationarity(), self.cost(),
        ]  # fmt: skip

    def found(self) -> Section:
        """What came out, in a sentence, in pictures and in one chart: of the deepest K."""
        rule = self._deepest
        step, rows = self.seeds.last(rule)
        counts = [self.seeds.values(rows[:1], key, 1)[0] for key in ("found", "corrupted", "false")]
        same = {"rule": rule, "seed": rows[0]["seed"], "step": step}
        here = [row for row in self.examples if same.items() <= row.items()]
        if not all(map(math.isfinite, counts)):
            return Section(f"Data hypercleaning{self.where}", ("No labels are counted yet.",))
        title, text = sentences([int(n) for n in counts], self.config, rule, step)
        items = (*(cards(here[-1]) if here else ()), self._found(rule))
        return Section(title + self.where, text, items)

    @property
    def _deepest(self) -> str:
        deep = [rule for rule in self.seeds.rules if self.seeds.depth(rule) is not None]
        return (deep or self.seeds.rules)[-1]

    def quality(self) -> Section:
        table = self._table(
            f"hypercleaning-table2{self.end}",
            "Accuracy, validation loss and F1 at the end of each run (Table 2)",
            QUALITY,
            PAPER,
            None,
        )
        text = (
            "Each row is one rule. A number K means back-propagation through the last K steps; "
            "the largest K goes through all of them.",
            "F1 is the harmonic mean of precision and recall, where an example counts as wrong if "
            "λ < −3 (the paper's choice). " + "".join(self._beside(GREY)) + self._ours(),
        )
        name, title = (
            f"hypercleaning-differences{self.end}",
            "Differences between rules, seed by seed",
        )
        items = (table, *self.seeds.differences(name, title, QUALITY))
        return Section(f"Comparison of the rules (Table 2){self.where}", text, items)

    def _ours(self) -> str:
        known = [f"{k} = {self.config[k]}" for k in _SHOWN if k in self.config]
        return f"These runs: {', '.join(known)}." if known else ""

    def identification(self) -> Section:
        ends: list[tuple[str, int | None, str]] = []
        if self.seeds.at(APPENDIX_STEP):
            ends.append(("150", APPENDIX_STEP, "after 150 hyper-iterations, as in the paper"))
        if any(self.seeds.last(rule)[0] != APPENDIX_STEP for rule in self.seeds.rules):
            ends.append(("end", None, "at the end of each run"))
        tables = [
            self._table(
                f"hypercleaning-f1-{n}{self.end}",
                f"F1 for three thresholds, {when} (appendix)",
                F1,
                PAPER_F1,
                step,
            )
            for n, step, when in ends
        ]
        first = [rule for rule in self.seeds.rules if self.seeds.depth(rule) == 1]
        charts = [self._found(rule) for rule in first if rule != self._deepest]
        text = (
            "An example counts as wrong when its λ falls below a threshold. A lower threshold "
            "accuses fewer right labels and misses more wrong ones. The table shows F1 for "
            "thresholds of −4, −3 and −1."
        )
        title = f"Other thresholds (appendix of the paper){self.where}"
        return Section(title, (text,), (*charts, *tables))

    def _found(self, rule: str) -> Chart:
        curves = (
            self.seeds.curve(rule, "corrupted", "all wrong labels", MUTED, dashed=True),
            self.seeds.curve(rule, "found", "wrong labels found", BLUE),
            self.seeds.curve(rule, "false", "right labels accused", ORANGE),
        )
        which = "" if self.seeds.depth(rule) == 1 else f"-{self.seeds.name(rule)}"
        return Chart(
            f"hypercleaning-identification{which}{self.end}",
            f"Labels with λ < −4, by {rule}",
            "How many labels are marked as wrong, rightly and wrongly." + self._bands(),
            STEP, Axis("examples"), curves,
        )  # fmt: skip

    def stationarity(self) -> Section:
        draw = lambda name, key, title, caption, axis: Chart(
            f"hypercleaning-{name}{self.end}", title, caption + self._bands(), STEP, axis,
            tuple(self.seeds.line(rule, key) for rule in self.seeds.rules),
            legend="K",
        )  # fmt: skip
        text = (
            "The gradient shown is always the exact one, by full back-propagation, also where a "
            "run follows another rule."
        )
        charts = (
            draw(
                "gradient", "gradient_norm", "Length of the exact hypergradient",
                "A line that stops falling belongs to a rule with a biased limit.",
                Axis("|df/dλ|", log=True),
            ),
            draw(
                "loss", "validation_loss", "Validation loss",
                "The loss that the rules minimize.", Axis("validation loss"),
            ),
        )  # fmt: skip
        return Section(f"Does it converge? (Figure 5){self.where}", (text,), charts)

    def _bands(self) -> str:
        return " Mean over the seeds, with one standard deviation." if self.seeds.several else ""

    def _table(
        self, name: str, title: str, metrics: list, paper: dict[int, tuple], step: int | None
    ) -> Table:
        columns = [Column("K", words=True)]
        for head, *_ in metrics:
            columns += [Column(head), *self._beside(Column("paper", paper=True))]
        columns += [Column("step"), Column("seeds")]
        rows = []
        for rule in self.seeds.rules:
            at, there = self.seeds.last(rule) if step is None else (step, self.seeds.of(rule, step))
            theirs = paper.get(self.seeds.depth(rule) or 0, ("",) * len(metrics))
            rows.append(self._row(rule, at, there, metrics, theirs))
        notes = self.seeds.unfinished(self.config.get("steps")) if metrics is QUALITY else ()
        if self.seeds.several:
            notes = ("Mean ± standard deviation over seeds.", *notes)
        return Table(name, title, tuple(columns), tuple(rows), notes)

    def _beside(self, theirs: Any) -> list[Any]:
        """The paper's value, where it speaks of the same data."""
        return [theirs] if self.config.get("data", "mnist") == "mnist" else []

    def _row(
        self, rule: str, step: int, there: Sequence[Row], metrics: list, theirs: Sequence[str]
    ) -> tuple[str, ...]:
        cells = [self.seeds.name(rule)]
        for (_, key, scale, digits), value in zip(metrics, theirs, strict=True):
            cells += [spread(self.seeds.values(there, key, scale), digits), *self._beside(value)]
        return (*cells, str(step), str(len(there)))

    def cost(self) -> Section:
        text = (
            "Time of one hypergradient, and memory of its compiled program without its arguments."
        )
        title = f"Time and memory of one hyper-iteration{self.where}"
        if not self.seeds.costs:
            return Section(title, (text, "No cost is recorded in these runs."))
        heads = "ms", "× forward pass", "MB", "MB, forward pass"
        columns = (Column("K", words=True), *map(Column, heads), Column("seeds"))
        rows = []
        for rule in self.seeds.colours:
            if there := self.seeds.costs.get(rule):
                rows.append((self.seeds.name(rule), *_costs(self.seeds, there), str(len(there))))
        table = Table(
            f"hypercleaning-cost{self.end}", "Time and memory of each rule", columns, tuple(rows)
        )
        return Section(title, (text,), (table,))


_SHOWN = ("data", "train", "validation", "n", "noise", "T", "gamma", "steps", "preset")


def _costs(seeds: Seeds, rows: Sequence[Row]) -> list[str]:
    seconds, forward = seeds.values(rows, "seconds", 1), seeds.values(rows, "forward_seconds", 1)
    times = [a / b if b else float("nan") for a, b in zip(seconds, forward, strict=True)]
    return [
        spread([1000 * s for s in seconds], 1),
        spread(times, 2),
        spread(seeds.values(rows, "bytes", 1e-6), 1),
        spread(seeds.values(rows, "forward_bytes", 1e-6), 1),
    ]
