"""Early stopping of trials that run side by side: each has its own best hyper-iteration."""

from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import numpy as np
from jaxtyping import PyTree

from ...._files import atomic_write


class Stall:
    """The best of each trial until it has not improved for `patience` hyper-iterations.

    What comes after that is not looked at, as if the trial had been stopped there. The state
    is a file: a run that resumes passes over hyper-iterations that are known, and skips them.
    """

    def __init__(self, file: Path, lam: PyTree, score: np.ndarray, patience: int):
        self._file, self._patience = file, patience
        self.step, self.lam = 0, jax.tree.map(np.array, lam)
        self.score, self.best = np.array(score), np.zeros(len(score), int)
        if file.exists():
            self._read()

    def see(self, step: int, score: np.ndarray, lam: PyTree) -> None:
        """The trials' scores, larger is better, and their lam, along the first axis."""
        if step <= self.step:
            return
        better = ~self.stalled & (score > self.score)
        self.step = step
        self.score = np.where(better, score, self.score)
        self.best = np.where(better, step, self.best)
        choose = lambda new, old: np.where(_beside(better, old), np.asarray(new), old)
        self.lam = jax.tree.map(choose, lam, self.lam)
        self._write()

    @property
    def stalled(self) -> np.ndarray:
        """Which trials are over."""
        return self.step - self.best >= self._patience

    @property
    def ends(self) -> np.ndarray:
        """Where each trial stopped, or how far it has come."""
        return np.minimum(self.step, self.best + self._patience)

    def _write(self) -> None:
        self._file.parent.mkdir(parents=True, exist_ok=True)
        with atomic_write(self._file) as file:
            eqx.tree_serialise_leaves(file, self._state)

    def _read(self) -> None:
        self._state = eqx.tree_deserialise_leaves(self._file, self._state)

    @property
    def _state(self) -> tuple[Any, ...]:
        return self.step, self.score, self.best, self.lam

    @_state.setter
    def _state(self, state: tuple[Any, ...]) -> None:
        self.step, self.score, self.best, self.lam = state


def _beside(mask: np.ndarray, a: np.ndarray) -> np.ndarray:
    """The mask of trials, shaped to go with an array of them."""
    return mask.reshape(-1, *[1] * (a.ndim - 1))
