"""One-shot classification (section 4.3): Table 4, Figure 7, cost."""

import json
from collections.abc import Sequence
from dataclasses import replace
from math import isfinite

from ...._pictures.palette import BLUE, ORANGE, TEAL
from ...page.chart import Axis, Chart
from ...page.section import Section
from ...page.table import Column, Table, spread
from ...records import Run
from ...report.groups import VARIED, group, suffix
from ...report.rows import integer, number, word
from ...report.seeds import Seeds, mean_curve

PAPER = {
    "1": ("95.6", "97.7", "0.4"),
    "10": ("96.3", "97.8", "0.7"),
    "25": ("96.1", "", "1.3"),
    "50": ("95.8", "", "2.2"),
    "T=1": ("", "96.6", "0.1"),
}
"""Table 4: accuracy after 5000 and 15,000 hyper-iterations, seconds in one."""

STEP = Axis("hyper-iteration")
ACCURACY = [("accuracy %", "test_accuracy", 100, 2), ("val. loss", "validation_loss", 1, 4)]
OBJECTIVES = {"regularised": BLUE, "rho = 0": ORANGE}
"""The others, at another rho, are dashed."""
SHOWN = ("data", "filters", "ways", "shots", "queries", "T", "batch", "rate", "preset")


def sections(runs: Sequence[Run]) -> list[Section]:
    """Table 4 for runs that differ in seed, rules and length; Figure 7 for each length."""
    out = []
    families: dict[str, list[Run]] = {}
    for run in runs:
        same = {k: v for k, v in run.config.items() if k not in (*VARIED, "steps")}
        families.setdefault(json.dumps(same, sort_keys=True, default=str), []).append(run)
    for i, family in enumerate(families.values()):
        where = f" ({_name(family[0])})" if len(families) > 1 else ""
        lengths = [_Length(part) for part in group(family)]
        lengths.sort(key=lambda length: length.steps or 0)
        out += _sections(lengths, suffix(i), where)
    return out


def _name(run: Run) -> str:
    return f"{run.config.get('data', 'unknown data')}, {run.config.get('preset', 'own settings')}"


def _sections(lengths: "list[_Length]", end: str, where: str) -> list[Section]:
    seen = [length for length in lengths if length.seeds.rules]
    if not seen:
        none = "No evaluation is recorded in these runs yet."
        return [Section(f"One-shot classification{where}", (none,))]
    out = [_table(seen, end, where)]
    for length in seen:
        several = len(seen) > 1
        ends = f"{end}-{length.steps}" if several else end
        out.append(length.figure(ends, where + (f", {length.steps} steps" if several else "")))
    return out


def _table(lengths: "list[_Length]", end: str, where: str) -> Section:
    config = lengths[0].config
    beside = config.get("data", "omniglot") == "omniglot"
    theirs = [Column(f"paper, {what}", paper=True) for what in ("5K", "15K", "s/iter.")]
    tasks = max((number(row, "tasks") for length in lengths for row in length.finals), default=0)
    more = [f"on {tasks:,.0f} tasks"] if tasks else []
    ours = ("accuracy %", *more, "iter.", "s/iter.", "MB", "seeds")
    columns = (Column("K", words=True), *map(Column, ours), *(theirs if beside else ()))
    paper = lambda name: PAPER.get(name, ("", "", "")) if beside else ()
    rows = [
        (*length.row(rule, bool(more)), *paper(length.seeds.name(rule)))
        for length in lengths
        for rule in length.seeds.rules
    ]
    notes = tuple(note for length in lengths for note in length.notes())
    table = Table(f"one-shot-table4{end}", "Table 4", columns, tuple(rows), notes)
    differences = [table for length in lengths for table in length.differences(end)]
    known = [f"{k} = {config[k]}" for k in SHOWN if k in config]
    text = (
        "A network learns a new set of characters from one drawing of each; what it learns from, "
        "λ, was tuned on many such tasks.",
        f"Accuracy on {config.get('episodes', 'some')} tasks of characters that are in no training "
        "task. Batches are normalised by their own statistics, test drawings by those of their "
        "task's. Seconds are those of one task's hypergradient times the tasks in a "
        "hyper-iteration, on this machine; MB is its memory. T=1 is full back-propagation through "
        "one step. "
        + ("Grey: the paper's values, on its machine. " if beside else "")
        + (f"These runs: {', '.join(known)}." if known else ""),
    )
    return Section(f"Table 4. One-shot classification{where}", text, (table, *differences))


class _Length:
    """Runs of one length: a comparison of rules, over seeds."""

    def __init__(self, runs: Sequence[Run]):
        self.config = runs[0].config
        steps = self.config.get("steps")
        self.steps = steps if isinstance(steps, int) else None
        self.seeds = Seeds(runs, self.config.get("T"))
        self._depths = [row for run in runs for row in run.of("depth")]
        self.finals = [row for run in runs for row in run.of("final")]

    def row(self, rule: str, final: bool) -> tuple[str, ...]:
        step, there = self.seeds.last(rule)
        batch = number({"batch": 1} | self.config, "batch")
        cost = self.seeds.costs.get(rule, [])
        finals = [row for row in self.finals if word(row, "rule") == rule]
        more = [spread(self.seeds.values(finals, "test_accuracy", 100), 2)] if final else []
        return (
            self.seeds.name(rule),
            spread(self.seeds.values(there, "test_accuracy", 100), 1),
            *more,
            str(step),
            spread(self.seeds.values(cost, "seconds", batch), 2),
            spread(self.seeds.values(cost, "bytes", 1e-6), 1),
            str(len(there)),
        )

    def notes(self) -> tuple[str, ...]:
        several = ("Mean ± standard deviation over seeds.",) if self.seeds.several else ()
        return (*several, *self._error(), *self.seeds.unfinished(self.steps))

    def _error(self) -> tuple[str, ...]:
        """How far the tasks that were drawn may lead astray."""
        if not self.finals:
            return ()
        tasks = max(number(row, "tasks") for row in self.finals)
        error = max(100 * number(row, "standard_error") for row in self.finals)
        return (
            f"The last λ is also judged on {tasks:,.0f} test tasks, with a standard error of at "
            f"most {error:.2f} points.",
        )

    def differences(self, end: str) -> list[Table]:
        title = f"Differences after {self.steps} hyper-iterations, seed by seed"
        return self.seeds.differences(f"one-shot-differences{end}-{self.steps}", title, ACCURACY)

    def figure(self, end: str, where: str) -> Section:
        rules = self.seeds.rules
        exact = [
            rule
            for rule in rules
            if self.seeds.depth(rule) == self.seeds.T or rule.startswith("T=")
        ]
        inexact = [rule for rule in rules if rule not in exact]
        charts = [
            _trained(self._chart(
                f"one-shot-accuracy{end}", "Test accuracy", "On the same tasks throughout.",
                Axis("accuracy"), "test_accuracy", rules,
            )),
            self._chart(
                f"one-shot-loss{end}", "Validation loss", "The outer objective, on tasks of other "
                "characters than those of training and testing.",
                Axis("validation loss", log=True), "validation_loss", rules,
            ),
            self._chart(
                f"one-shot-cosine{end}", "Cosine with full back-propagation",
                "Mean hypergradients of the same tasks. Above 0 it is a direction of descent.",
                Axis("cosine"), "cosine", inexact,
            ),
        ]  # fmt: skip
        charts += [self._depth(end)] if self._depths else []
        shown = tuple(chart for chart in charts if chart.series)
        text = "K is the depth of truncation; the other rules go by their names."
        return Section(f"Figure 7. The way there{where}", (text,), shown)

    def _chart(
        self, name: str, title: str, caption: str, axis: Axis, key: str, rules: Sequence[str]
    ) -> Chart:
        bands = " Mean over seeds, with one standard deviation." if self.seeds.several else ""
        curves = tuple(self.seeds.line(rule, key) for rule in rules)
        return Chart(name, title, caption + bands, STEP, axis, curves, legend="K")

    def _depth(self, end: str) -> Chart:
        """At the λ of the deepest rule that has it."""
        there = {word(row, "rule") for row in self._depths}
        rules = [rule for rule in self.seeds.colours if rule in there]
        known = [rule for rule in rules if self.seeds.depth(rule) is not None] or rules
        rows = [row for row in self._depths if word(row, "rule") == known[-1]]
        curves = []
        for objective in sorted({word(row, "objective") for row in rows}):
            there = [row for row in rows if row.get("objective") == objective]
            x = sorted({integer(row, "K") for row in there})
            label = "ρ as learned" if objective == "regularised" else objective.replace("rho", "ρ")
            colour, dashed = OBJECTIVES.get(objective, TEAL), objective not in OBJECTIVES
            values = [[number(row, "error") for row in there if row.get("K") == K] for K in x]
            curves.append(mean_curve(x, values, label, colour, dashed))
        caption = (
            "|h − df/dλ| / |df/dλ|, mean over tasks, at the λ learned with K = "
            f"{self.seeds.name(known[-1])}; with another ρ: at the same λ but for ρ."
        )
        return Chart(
            f"one-shot-depth{end}", "Error of truncation", caption, Axis("K"),
            Axis("relative error", log=True), tuple(curves),
        )  # fmt: skip


def _trained(chart: Chart) -> Chart:
    """What comes after the start, which is so far below that all lines would look like one."""
    ends = [end for line in chart.series for end in (line.low or line.y, line.high or line.y)]
    y = [value for end in ends for value in end[1:] if isfinite(value)]
    if not y or min(y) == max(y):
        return chart
    edge = 0.05 * (max(y) - min(y))
    axis = replace(chart.y, limits=(min(y) - edge, max(y) + edge))
    caption = f"{chart.caption} The axis begins with the first evaluation after the start."
    return replace(chart, y=axis, caption=caption)
