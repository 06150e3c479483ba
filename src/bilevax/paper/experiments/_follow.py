"""Records of an outer loop, written while it runs and complete however often it was killed."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from ..._outer.minimize import Result
from ..._outer.progress import Progress
from ..records import Records

Numbers = dict[str, Any]


class EvaluationLog:
    """Evaluations of one rule and seed, on their way to the records."""

    def __init__(self, records: Records, label: dict[str, Any], checkpoints: Path):
        self._records, self._label, self.checkpoints = records, label, checkpoints

    def first(self, numbers: Numbers) -> None:
        self._add(0, numbers)

    def write(self, now: Progress | Result) -> None:
        """Add evaluations; those of the result too, since a run may be killed after it saved an
        evaluation and before this was called.
        """
        for step, numbers in evaluations(now):
            self._add(step, numbers)

    def examples(self, step: int, numbers: Numbers) -> None:
        self._records.add(kind="examples", **self._label, step=step, **numbers)

    def audits(self, result: Result) -> None:
        """The hyper-iterations with an audit, of a run that has any."""
        if "audit" in result.history:
            at = np.flatnonzero(result.history["audit"]).tolist()
            self._records.add(kind="audits", **self._label, step=result.step, at=at)

    def _add(self, step: int, numbers: Numbers) -> None:
        self._records.add(kind="evaluation", **self._label, step=step, **numbers)


def evaluations(now: Progress | Result) -> Iterator[tuple[int, Numbers]]:
    """Hyper-iteration and numbers of each evaluation."""
    columns = {name: values.tolist() for name, values in now.evaluations.items()}
    for i, step in enumerate(columns.pop("step")):
        yield int(step), {name: values[i] for name, values in columns.items()}


def follow(records: Records, out: Path, rule: str, seed: int, steps: int) -> EvaluationLog:
    """An `EvaluationLog`, with a line on the terminal that says which rule runs."""
    announce(f"{rule}, seed {seed}: {steps} hyper-iterations")
    return EvaluationLog(records, {"rule": rule, "seed": seed}, out / "checkpoints" / as_file(rule))


def announce(text: str) -> None:
    Console(stderr=True).print(text, markup=False)


def as_file(rule: str) -> str:
    """A name of a folder that says which rule it belongs to."""
    return re.sub(r"[^A-Za-z0-9.=]+", "-", rule).strip("-")
