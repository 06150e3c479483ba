"""Records of an outer loop, written while it runs and complete however often it was killed."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich.console import Console

from ..._outer.minimize import Result
from ..._outer.progress import Progress
from ..records import Records

Numbers = dict[str, Any]


class EvaluationLog:
    """Evaluations of one rule and seed, on their way to the records."""

    def __init__(self, records: Records, label: dict[str, Any], checkpoints: Path):
        self._records, self._label, self._pending = records, label, None
        self.checkpoints = checkpoints

    def first(self, numbers: Numbers) -> None:
        self._add(0, numbers)

    def keep(self, evaluate: Callable[[Any], Numbers]) -> Callable[[Any], Numbers]:
        """`evaluate` knows no hyper-iteration: its numbers wait for `write`, which does."""

        def kept(lam: Any) -> Numbers:
            self._pending = evaluate(lam)
            return self._pending

        return kept

    def write(self, progress: Progress) -> None:
        if self._pending is not None:
            self._add(progress.step, self._pending)
            self._pending = None

    def complete(self, result: Result) -> None:
        """What a kill between checkpoint and record may have left out."""
        evaluations = {name: values.tolist() for name, values in result.evaluations.items()}
        steps = evaluations.pop("step")
        for i, step in enumerate(steps):
            self._add(int(step), {name: values[i] for name, values in evaluations.items()})

    def _add(self, step: int, numbers: Numbers) -> None:
        self._records.add(kind="evaluation", **self._label, step=step, **numbers)


def follow(records: Records, out: Path, rule: str, seed: int, steps: int) -> EvaluationLog:
    """An `EvaluationLog`, with a line on the terminal that says which rule runs."""
    announce(f"{rule}, seed {seed}: {steps} hyper-iterations")
    return EvaluationLog(records, {"rule": rule, "seed": seed}, out / "checkpoints" / as_file(rule))


def announce(text: str) -> None:
    Console(stderr=True).print(text, markup=False)


def as_file(rule: str) -> str:
    """A name of a folder that says which rule it belongs to."""
    return re.sub(r"[^A-Za-z0-9.=]+", "-", rule).strip("-")
