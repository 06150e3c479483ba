"""What a run has recorded so far, on the host: history, evaluations, the best lam."""

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import numpy as np

from .._errors import outer as check
from .._types import Hyper
from .checkpoints import filled, named
from .devices import like

History = dict[str, np.ndarray]


class Best(NamedTuple):
    """The best evaluation of a run: the one with the smallest first number.

    !!! example

        >>> import bilevax as bx, optax
        >>> from bilevax import problems
        >>> p = problems.counterexample()
        >>> result = bx.minimize(p.f, p.xi, bx.Reverse(), p.lam, T=p.T, steps=3, S=p.S,
        ...                      optimizer=optax.sgd(0.1), evaluate=lambda lam: 1.0)
        >>> result.best.step, result.best.value
        (1, 1.0)
    """

    lam: Hyper
    """The hyperparameters that were evaluated."""
    value: float
    """The first number that `evaluate` returned for them."""
    step: int
    """After how many hyper-iterations."""


class Log:
    """The records of a run; goes into checkpoints and into the result."""

    def __init__(self) -> None:
        self.tau = 0
        self.best: Best | None = None
        self.waited = 0
        """Evaluations since the best one."""
        self._records = {name: np.zeros(0) for name in ("value", "h_norm")}
        self._evaluations: dict[str, list[float]] = {"step": []}

    def add(self, new: History) -> None:
        n = len(new["value"])
        for name, values in new.items():
            room = self._records.get(name)
            if room is None or len(room) < self.tau + n:  # double it, so that copies are few
                more = np.zeros(2 * (self.tau + n), values.dtype)
                more[: self.tau] = 0 if room is None else room[: self.tau]
                room = self._records[name] = more
            room[self.tau : self.tau + n] = values
        self.tau += n

    def evaluate(self, evaluate: Callable[[Hyper], Any], lam: Hyper) -> None:
        """Call the user's function; keep its numbers, and lam if they are the best."""
        scores = check.scores(evaluate(lam)) | {"step": float(self.tau)}
        before = len(self.evaluated)
        for name in scores:  # what is new was not a number before
            self._evaluations.setdefault(name, [math.nan] * before)
        for name, values in self._evaluations.items():
            values.append(scores.get(name, math.nan))
        value = list(self._evaluations.values())[1][-1]  # the first name, whatever came later
        if value < (math.inf if self.best is None else self.best.value):
            self.best, self.waited = Best(lam, value, self.tau), 0
        else:
            self.waited += 1

    def since(self, tau: int, evaluations: int) -> tuple[History, History]:
        """What came after tau hyper-iterations, and after so many evaluations."""
        records = {name: room[tau : self.tau].copy() for name, room in self._records.items()}
        return records, {n: np.asarray(a[evaluations:]) for n, a in self._evaluations.items()}

    def first_pair(self, name: str) -> int | None:
        """The first hyper-iteration in which this record is not zero, twice in a row."""
        found = np.flatnonzero(self._records.get(name, np.zeros(0))[: self.tau])
        pairs = found[:-1][np.diff(found) == 1]
        return int(pairs[0]) + 1 if len(pairs) else None

    @property
    def evaluated(self) -> list[float]:
        """The hyper-iterations after which there was an evaluation."""
        return self._evaluations["step"]

    @property
    def history(self) -> History:
        return self.since(0, 0)[0]

    @property
    def evaluations(self) -> History:
        return self.since(0, 0)[1]

    def save(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """(arrays, note) for a checkpoint."""
        arrays = {f"history.{name}": a for name, a in self.history.items()}
        arrays |= {f"evaluations.{name}": a for name, a in self.evaluations.items()}
        note = {"tau": self.tau, "waited": self.waited, "best": None}
        if self.best is not None:
            arrays |= named("best", self.best.lam)
            note["best"] = [self.best.value, self.best.step]
        return arrays, note

    @staticmethod
    def load(arrays: Mapping[str, Any], note: Mapping[str, Any], lam: Hyper) -> "Log":
        log = Log()
        of = lambda kind: {n.removeprefix(kind): a for n, a in arrays.items() if n.startswith(kind)}
        log.tau, log.waited = note["tau"], note["waited"]
        log._records = of("history.")
        log._evaluations = {name: a.tolist() for name, a in of("evaluations.").items()}
        if note["best"] is not None:
            log.best = Best(jax.tree.map(like, lam, filled("best", lam, arrays)), *note["best"])
        return log
