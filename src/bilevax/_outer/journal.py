"""What a run has seen so far, on the host: records, evaluations, the best lam."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import PyTree

from .._errors import outer as check
from .._types import Hyper
from .watch import History


class Best(NamedTuple):
    """The lam of the best evaluation."""

    lam: Hyper
    value: float
    step: int


class Journal:
    """Grows with the run; goes into checkpoints and into the result."""

    def __init__(self) -> None:
        self.tau = 0
        self.best: Best | None = None
        self.waited = 0
        self._records: dict[str, np.ndarray] = {}
        self._evaluations: dict[str, list[float]] = {}

    def add(self, new: History) -> None:
        n = len(new["value"])
        for name, values in new.items():
            room = self._records.get(name)
            if room is None or len(room) < self.tau + n:  # twice as much, so that copies are few
                more = np.zeros(2 * (self.tau + n), values.dtype)
                more[: self.tau] = 0 if room is None else room[: self.tau]
                room = self._records[name] = more
            room[self.tau : self.tau + n] = values
        self.tau += n

    def evaluate(self, evaluate: Callable[[Hyper], Any], lam: Hyper) -> None:
        """Call the user's function; remember its numbers, and lam if they are the best."""
        scores = check.scores(evaluate(lam))
        for name, score in {"step": float(self.tau), **scores}.items():
            self._evaluations.setdefault(name, []).append(score)
        value = next(iter(scores.values()))
        if self.best is None or value < self.best.value:
            self.best, self.waited = Best(lam, value, self.tau), 0
        else:
            self.waited += 1

    @property
    def history(self) -> History:
        return {name: room[: self.tau].copy() for name, room in self._records.items()}

    @property
    def evaluations(self) -> History:
        return {name: np.asarray(scores) for name, scores in self._evaluations.items()}

    def save(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """(arrays, note) for a checkpoint."""
        arrays = {f"history.{name}": a for name, a in self.history.items()}
        arrays |= {f"evaluations.{name}": a for name, a in self.evaluations.items()}
        rooms = {name: [a.shape, a.dtype.name] for name, a in arrays.items()}
        note = {"tau": self.tau, "waited": self.waited, "rooms": rooms, "best": None}
        if self.best is not None:
            arrays |= named("best", self.best.lam)
            note["best"] = [self.best.value, self.best.step]
        return arrays, note

    @staticmethod
    def wanted(note: Mapping[str, Any], lam: Hyper) -> dict[str, Any]:
        """The arrays that go with a note, to be filled from a checkpoint."""
        rooms = {name: np.empty(shape, dtype) for name, (shape, dtype) in note["rooms"].items()}
        return rooms | (named("best", lam) if note["best"] is not None else {})

    @staticmethod
    def load(arrays: Mapping[str, Any], note: Mapping[str, Any], lam: Hyper) -> "Journal":
        journal = Journal()
        of = lambda kind: {n.removeprefix(kind): a for n, a in arrays.items() if n.startswith(kind)}
        journal.tau, journal.waited = note["tau"], note["waited"]
        journal._records = {n: np.array(a) for n, a in of("history.").items()}
        journal._evaluations = {n: np.asarray(a).tolist() for n, a in of("evaluations.").items()}
        if note["best"] is not None:
            journal.best = Best(filled("best", lam, arrays), *note["best"])
        return journal


def named(root: str, x: PyTree) -> dict[str, Any]:
    """The leaves of x under their names: lam.penalty, opt.0.mu, ..."""
    out = {}
    for path, leaf in jax.tree_util.tree_leaves_with_path(x):
        name = ".".join(
            filter(None, [root, jax.tree_util.keystr(path, simple=True, separator=".")])
        )
        while name in out:  # {"a": {"b": x}, "a.b": y}
            name += "_"
        out[name] = leaf
    return out


def filled(root: str, x: PyTree, arrays: Mapping[str, Any]) -> PyTree:
    """x with its leaves replaced by those of their names."""
    leaves = [arrays[name] for name in named(root, x)]
    return jax.tree.structure(x).unflatten(leaves)
