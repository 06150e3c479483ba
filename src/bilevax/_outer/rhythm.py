"""When something is due between two hyper-iterations."""

from typing import NamedTuple

from .._errors import check as base

EVERY = "give a number of hyper-iterations"


class Rhythm(NamedTuple):
    """Numbers of hyper-iterations; None for what is not wanted."""

    steps: int
    evaluate: int | None
    save: int | None
    seconds: float
    """Save after so much time, too."""
    patience: int | None

    def until(self, tau: int) -> int:
        """How many may be taken in one go before something is due."""
        ends = [every - tau % every for every in (self.evaluate, self.save) if every]
        return min([self.steps - tau, *ends])

    def evaluates(self, tau: int) -> bool:
        return self.evaluate is not None and (tau % self.evaluate == 0 or tau == self.steps)

    def saves(self, tau: int) -> bool:
        return self.save is not None and tau % self.save == 0

    def check(self) -> "Rhythm":
        base.integer(self.steps, "steps", EVERY)
        base.positive(self.seconds, "checkpoint_seconds", "give seconds between two checkpoints")
        optional = {
            "evaluate_every": self.evaluate,
            "checkpoint_every": self.save,
            "patience": self.patience,
        }
        for name, every in optional.items():
            if every is not None:
                base.integer(every, name, EVERY)
        return self
