"""Evaluations of several rules over several seeds."""

import math
from collections.abc import Sequence
from statistics import fmean, stdev
from typing import Any

from ..._pictures.palette import Colour
from ..page.chart import Series
from ..page.table import Column, Table, spread
from ..records import Row, Run, RunError
from .groups import colours, depth
from .rows import integer, number, word

Metric = tuple[str, str, float, int]
"""Heading, column of the records, factor, digits."""


class Seeds:
    """Records of kind evaluation and cost, by rule, seed and hyper-iteration."""

    def __init__(self, runs: Sequence[Run], T: Any):
        self.T = T if isinstance(T, int) else None
        self._rows: dict[str, dict[int, dict[int, Row]]] = {}
        self.costs: dict[str, list[Row]] = {}
        self._owner: dict[tuple[str, int], Run] = {}
        for run in runs:
            for row in run.of("evaluation"):
                self._add(run, row)
            for row in run.of("cost"):
                self.costs.setdefault(word(row, "rule"), []).append(row)
        self.colours = colours(list({**self._rows, **self.costs}), self.T)
        self.rules = [rule for rule in self.colours if rule in self._rows]

    def _add(self, run: Run, row: Row) -> None:
        rule, seed = word(row, "rule"), integer(row, "seed")
        owner = self._owner.setdefault((rule, seed), run)
        if owner is not run:
            raise RunError(
                f"{owner.path} and {run.path} both hold {rule} with seed {seed}; give one of them."
            )
        self._rows.setdefault(rule, {}).setdefault(seed, {})[integer(row, "step")] = row

    def depth(self, rule: str) -> int | None:
        """K of truncated back-propagation; no other rule has one."""
        return depth(rule, self.T)

    def name(self, rule: str) -> str:
        """K, or what the rule is called."""
        return rule if (K := self.depth(rule)) is None else str(K)

    @property
    def several(self) -> bool:
        return any(len(seeds) > 1 for seeds in self._rows.values())

    def of(self, rule: str, step: int) -> list[Row]:
        """The evaluations of a rule at a hyper-iteration, one for each seed that has it."""
        return [rows[step] for rows in self._rows[rule].values() if step in rows]

    def at(self, step: int) -> list[Row]:
        """Those of all rules."""
        return [row for rule in self.rules for row in self.of(rule, step)]

    def last(self, rule: str) -> tuple[int, list[Row]]:
        """The farthest hyper-iteration of a rule, and its evaluations there."""
        step = max(step for rows in self._rows[rule].values() for step in rows)
        return step, self.of(rule, step)

    def unfinished(self, steps: Any) -> tuple[str, ...]:
        """A sentence for the rules and the seed that stop before the end."""
        if not isinstance(steps, int):
            return ()
        stops: dict[tuple[int, int], list[str]] = {}
        for rule in self.rules:
            for seed, rows in self._rows[rule].items():
                if max(rows) < steps:
                    stops.setdefault((seed, max(rows)), []).append(rule)
        return tuple(
            f"Seed {seed} stops at hyper-iteration {end} of {steps}: {', '.join(rules)}."
            for (seed, end), rules in stops.items()
        )

    def values(self, rows: Sequence[Row], key: str, scale: float) -> list[float]:
        return [scale * number(row, key) for row in rows]

    def differences(self, name: str, title: str, metrics: Sequence[Metric]) -> list[Table]:
        """Rules against the deepest K, seed by seed: what the seeds do to both drops out.

        No table, if there are not two seeds of anything to compare.
        """
        many = [rule for rule in self.rules if len(self._rows[rule]) > 1]
        deep = [rule for rule in many if self.depth(rule) is not None][-1:]
        pairs = {rule: self._pairs(rule, deep[0]) for rule in many if deep and rule != deep[0]}
        rows = [
            (self.name(rule), *(_difference(there, metric) for metric in metrics), str(len(there)))
            for rule, there in pairs.items()
            if len(there) > 1
        ]
        if not rows:
            return []
        columns = (Column("K", words=True), *(Column(m[0]) for m in metrics), Column("seeds"))
        note = (
            f"A rule's value minus that of K = {self.name(deep[0])} with the same seed, at the "
            "last hyper-iteration that both have: mean ± standard deviation over seeds."
        )
        return [Table(name, title, columns, tuple(rows), (note,))]

    def _pairs(self, rule: str, other: str) -> list[tuple[Row, Row]]:
        """Of each seed, where both were evaluated last."""
        ours, theirs = self._rows[rule], self._rows[other]
        both = {seed: ours[seed].keys() & theirs[seed].keys() for seed in ours if seed in theirs}
        last = max((step for steps in both.values() for step in steps), default=None)
        return [(ours[s][last], theirs[s][last]) for s, steps in both.items() if last in steps]

    def line(self, rule: str, key: str) -> Series:
        """A curve among those of other rules, by name and colour; dashed, if it has no K."""
        dashed = self.depth(rule) is None
        return self.curve(rule, key, self.name(rule), self.colours[rule], dashed)

    def curve(
        self, rule: str, key: str, label: str, colour: Colour, dashed: bool = False
    ) -> Series:
        """Mean over seeds against hyper-iteration; where there are several, what they span."""
        steps = sorted({step for rows in self._rows[rule].values() for step in rows})
        groups = [self.values(self.of(rule, step), key, 1) for step in steps]
        return mean_curve(steps, groups, label, colour, dashed)


def mean_curve(
    x: Sequence[float],
    groups: Sequence[Sequence[float]],
    label: str,
    colour: Colour,
    dashed: bool = False,
) -> Series:
    """The mean of each group of values; where a group has several, one standard deviation."""
    means = [fmean(values) for values in groups]
    if max(map(len, groups), default=1) == 1:
        return Series(x, means, label, colour, dashed)
    widths = [_width(values) for values in groups]
    low = [m - w if w < m else m for m, w in zip(means, widths, strict=True)]
    high = [m + w for m, w in zip(means, widths, strict=True)]
    return Series(x, means, label, colour, dashed, low=low, high=high)


def _difference(pairs: Sequence[tuple[Row, Row]], metric: Metric) -> str:
    _, key, scale, digits = metric
    values = [scale * (number(a, key) - number(b, key)) for a, b in pairs]
    return spread(values, digits, sign="+")


def _width(values: Sequence[float]) -> float:
    return stdev(values) if len(values) > 1 and all(map(math.isfinite, values)) else 0.0
