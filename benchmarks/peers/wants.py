"""What is asked of a library, and what it gives back."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np


@dataclass(frozen=True)
class Full:
    """All terms of the hypergradient."""

    def __str__(self):
        return "full"


@dataclass(frozen=True)
class Checkpointed:
    """All terms, with one state kept in `segment` steps."""

    segment: int

    def __str__(self):
        return "checkpointed"


@dataclass(frozen=True)
class Truncated:
    """The last K terms."""

    K: int

    def __str__(self):
        return f"K={self.K}"


@dataclass(frozen=True)
class Budget:
    """The last K terms, or all, with whatever is worth keeping in so many bytes."""

    K: int | None = None
    memory: float = 1e9

    def __str__(self):
        return f"{'full' if self.K is None else f'K={self.K}'}, {self.memory / 1e9:g} GB"


@dataclass(frozen=True)
class Implicit:
    """The implicit function theorem at w_T, by conjugate gradients."""

    rtol: float = 1e-4
    steps: int = 300

    def __str__(self):
        return "implicit"


@dataclass(frozen=True)
class Rule:
    """A rule that only bilevax has; its answer is its own."""

    text: str

    def __str__(self):
        return self.text


Want = Full | Checkpointed | Truncated | Budget | Implicit | Rule


class NotOfferedError(Exception):
    """The library has nothing for what is asked; the message says what is missing."""


class Program(NamedTuple):
    """A hypergradient, ready to be computed again and again."""

    run: Callable[[], Any]
    """To the end: nothing is under way when it returns."""
    read: Callable[[Any], dict[str, np.ndarray]]
    """From what `run` returns to the hypergradient, shaped like the problem's lam."""
    compile_seconds: float = 0.0
    bytes: int | None = None
    """What XLA allocates for the program, beside its arguments."""


def distance(a: dict[str, np.ndarray], b: dict[str, np.ndarray]) -> float:
    """|a - b| / |b|, over all leaves."""
    assert set(a) == set(b), f"{sorted(a)} are not {sorted(b)}"
    flat = lambda tree: np.concatenate([np.ravel(tree[k]).astype(float) for k in sorted(tree)])
    return float(np.linalg.norm(flat(a) - flat(b)) / np.linalg.norm(flat(b)))
