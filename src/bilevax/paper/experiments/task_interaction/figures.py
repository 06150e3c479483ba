"""Task interaction (section 4.2.2 and its appendix): Table 3, Figure 6, and what was learned."""

import math
from collections.abc import Sequence
from dataclasses import replace
from statistics import fmean, median

from ...._pictures.clusters import order
from ...page.chart import Axis, Chart, HeatMap, Series
from ...page.section import Section
from ...page.table import Column, Table, spread
from ...records import Row, Run
from ...report.groups import suffix
from ...report.rows import integer, number, numbers, word
from ...report.seeds import Seeds

PAPER = {
    "cifar10": {
        1: ("61.11 ± 1.23", "3300", "0.8"),
        5: ("61.33 ± 1.08", "4950", "1.3"),
        25: ("61.31 ± 1.24", "4825", "1.4"),
        100: ("61.28 ± 1.21", "4500", "2.2"),
    },
    "cifar100": {
        1: ("34.37 ± 0.63", "7440", "1.0"),
        5: ("34.34 ± 0.68", "8805", "1.4"),
        25: ("34.51 ± 0.69", "8660", "1.6"),
        100: ("34.70 ± 0.64", "5670", "2.8"),
    },
}
"""Table 3: test accuracy, hyper-iterations, seconds of one."""

TITLES = {"cifar10": "CIFAR-10", "cifar100": "CIFAR-100"}
LEAK = (
    "The trials were stopped on test accuracy, as the paper's were: these accuracies were "
    "chosen by the data they are measured on, and are too high."
)
STEP = Axis("hyper-iteration")
PAIRS = 12
LOST = 3


def sections(runs: Sequence[Run]) -> list[Section]:
    """Three sections for each data set of each run."""
    parts = []
    for i, run in enumerate(runs):
        names = dict.fromkeys(word(row, "data") for row in run.of("classes"))
        where = f", {run.path.name}" if len(runs) > 1 else ""
        parts += [_Set(run, name, suffix(i), where) for name in names]
    if not parts:
        return [Section("Task interaction", ("Nothing is recorded in these runs yet.",))]
    return [section for part in parts for section in part.sections()]


class _Set:
    """One data set of one run."""

    def __init__(self, run: Run, data: str, end: str, where: str):
        self.run, self.data, self.end = run, data, f"-{data}{end}"
        self.where = f" ({TITLES.get(data, data)}{where})"
        (self.classes,) = run.of("classes", data=data)[:1]
        own = [_as_seed(row) for row in run.rows if row.get("data") == data]
        self.trials = Seeds([replace(run, rows=own)], run.config.get("T"))

    def sections(self) -> list[Section]:
        if not self.trials.rules:
            none = "No evaluation is recorded of this set yet."
            return [Section(f"Task interaction{self.where}", (none, self._source()))]
        return [self.quality(), self.stationarity(), self.learned()]

    def _source(self) -> str:
        return f"Data: {word(self.classes, 'source')}."

    def quality(self) -> Section:
        text = (
            "Each class is a task with few examples; C says which classes share what they learn. "
            "Accuracy at the hyper-iteration that was best, which is the one given, of each trial.",
            self._source() + self._theirs(),
        )
        return Section(f"Table 3. What is learned{self.where}", text, (self._table(),))

    def _theirs(self) -> str:
        if self.data not in PAPER:
            return ""
        return (
            " Grey: the paper's values, with features of a ResNet-18, stopped on test accuracy; "
            "its seconds are of another machine and of one trial, ours of all trials together."
        )

    def _table(self) -> Table:
        beside = lambda: [Column("paper", paper=True)] if self.data in PAPER else []
        columns = [Column("K", words=True)]
        for head in ("test acc. %", "hyper-iterations", "s each"):
            columns += [Column(head), *beside()]
        columns += [Column("val. acc. %"), Column("before, test acc. %"), Column("trials")]
        rows = [self._row(rule) for rule in self.trials.rules]
        name = f"task-interaction-table3{self.end}"
        return Table(name, "Table 3", tuple(columns), tuple(rows), self._notes())

    def _row(self, rule: str) -> tuple[str, ...]:
        stops = self.run.of("stop", data=self.data, rule=rule)
        of = lambda key, scale: [scale * number(row, key) for row in stops]
        seconds = [number(row, "seconds") for row in self.trials.costs.get(rule, ())]
        ours = (
            spread(of("test_accuracy", 100), 2),
            f"{fmean(of('best_step', 1)):.0f}" if stops else "–",
            spread(seconds, 4),
        )
        paper = PAPER.get(self.data)
        theirs = paper.get(self.trials.depth(rule) or 0, ("",) * 3) if paper else None
        cells = [c for i, a in enumerate(ours) for c in ([a, theirs[i]] if theirs else [a])]
        start = [100 * number(row, "test_accuracy") for row in self.trials.of(rule, 0)]
        last = spread(of("validation_accuracy", 100), 2), spread(start, 2), str(len(stops))
        return (self.trials.name(rule), *cells, *last)

    def _notes(self) -> tuple[str, ...]:
        stops = self.run.of("stop", data=self.data)
        notes = ["Mean ± standard deviation over trials."] if stops else []
        if any(word(row, "criterion") == "test_accuracy" for row in stops):
            notes.append(LEAK)
        patience = self.run.config.get("patience")
        patience = patience if isinstance(patience, int) else 0
        going = sum(integer(row, "step") - integer(row, "best_step") < patience for row in stops)
        if going:
            notes.append(
                f"{going} of {len(stops)} trials had reached the last hyper-iteration before "
                f"{patience} went by without improvement."
            )
        missing = [r for r in self.trials.rules if not self.run.of("stop", data=self.data, rule=r)]
        return (*notes, *(f"{rule} has not ended." for rule in missing))

    def stationarity(self) -> Section:
        draw = lambda name, key, title, caption, axis, level=None: Chart(
            f"task-interaction-{name}{self.end}", title, caption, STEP, axis,
            tuple(self._curve(rule, key) for rule in self.trials.rules), level=level, legend="K",
        )  # fmt: skip
        charts = (
            draw(
                "loss", "validation_loss", "The outer objective",
                "Validation loss f, mean over trials (which differ more than the rules do).",
                Axis("validation loss"),
            ),
            draw(
                "gradient", "gradient_norm", "|df/dλ| at the iterates",
                "The true gradient, by full back-propagation, whatever rule λ follows.",
                Axis("|df/dλ|", log=True),
            ),
            draw(
                "cosine", "cosine", "Cosine of h and df/dλ",
                "Above the dotted line the rule's h descends.", Axis("cosine"), 0.0,
            ),
        )  # fmt: skip
        text = (
            "Trials go on in this figure after they have been stopped for the table. A curve ends "
            f"where the validation loss has risen to {LOST} times what it was in the beginning."
        )
        return Section(f"Figure 6. Does it become stationary?{self.where}", (text,), charts)

    def _curve(self, rule: str, key: str) -> Series:
        curve = self.trials.line(rule, key)
        curve = _until(curve, _end(self.trials.line(rule, "validation_loss")))
        if key == "validation_loss":
            return replace(curve, low=None, high=None)
        if key != "cosine" or curve.high is None:
            return curve
        low = [max(2 * m - h, -1.0) for m, h in zip(curve.y, curve.high, strict=True)]
        return replace(curve, low=low, high=[min(h, 1.0) for h in curve.high])

    def learned(self) -> Section:
        there = {rule: C for rule in self.trials.rules if (C := self._matrix(rule))}
        title = f"Which classes share what they learn{self.where}"
        if not there:
            return Section(title, ("No interaction is recorded of this set yet.",))
        deepest = max(there, key=lambda rule: self.trials.depth(rule) or 0)
        text = (
            "C at the best hyper-iteration, mean over trials. A large C draws two classes to the "
            "same weights: what tells them apart is then learned from the data less.",
        )
        items = (self._picture(deepest, there[deepest]), self._pairs(there, deepest))
        return Section(title, text, items)

    def _matrix(self, rule: str) -> list[list[float]]:
        rows = self.run.of("interaction", data=self.data, rule=rule)
        rows = sorted(rows, key=lambda row: integer(row, "y"))
        return [numbers(row, "C") for row in rows] if len(rows) == len(self._names()) else []

    def _names(self) -> list[str]:
        names = self.classes.get("names")
        return [str(name).replace("_", " ") for name in names] if isinstance(names, list) else []

    def _picture(self, rule: str, C: list[list[float]]) -> Chart:
        places, names = order(C), self._names()
        z = [[math.nan if i == j else C[i][j] for j in places] for i in places]
        ordered = [names[i] for i in places]
        return Chart(
            f"task-interaction-C{self.end}", f"C learned with K = {self.trials.name(rule)}",
            "Classes in the order of hierarchical clusters. Colours on the scale of log C.",
            Axis(""), Axis(""), heat=HeatMap(ordered, ordered, z, "C", log=True),
        )  # fmt: skip

    def _pairs(self, there: dict[str, list[list[float]]], deepest: str) -> Table:
        names, C = self._names(), there[deepest]
        every = [(i, j) for i in range(len(C)) for j in range(i)]
        most = sorted(every, key=lambda pair: -C[pair[0]][pair[1]])[:PAIRS]
        middle = {rule: median(M[i][j] for i, j in every) for rule, M in there.items()}
        heads = (Column("classes", words=True), Column("C"))
        columns = (*heads, *(Column(f"× median, K = {self.trials.name(rule)}") for rule in there))
        cells = lambda i, j: [f"{M[i][j] / middle[r]:.2f}" for r, M in there.items()]
        rows = tuple((f"{names[j]} – {names[i]}", f"{C[i][j]:.2e}", *cells(i, j)) for i, j in most)
        title = f"The pairs with the largest C, by K = {self.trials.name(deepest)}"
        return Table(f"task-interaction-pairs{self.end}", title, columns, rows)


def _end(loss: Series) -> float:
    """The hyper-iteration at which a run is lost."""
    lost = (x for x, y in zip(loss.x, loss.y, strict=True) if not y <= LOST * loss.y[0])
    return next(lost, math.inf)


def _until(curve: Series, end: float) -> Series:
    keep = sum(x < end for x in curve.x)
    cut = lambda values: None if values is None else values[:keep]
    return replace(
        curve, x=curve.x[:keep], y=curve.y[:keep], low=cut(curve.low), high=cut(curve.high)
    )


def _as_seed(row: Row) -> Row:
    """A trial is to `Seeds` what a seed is."""
    return row | {"seed": row["trial"]} if "trial" in row else row
