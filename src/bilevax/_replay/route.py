"""Which segment comes next, there and back, and which states to keep on the way.

With room for all boundaries each segment is run once there, and once more on the way back. With
less, the boundaries of every d-th segment are kept, and those between them are found again when
the way back comes there: a tree, with one more forward pass for each of its levels.
"""

from collections.abc import Iterator
from typing import NamedTuple

from .._errors import replay as check


class Segment(NamedTuple):
    """Steps t, ..., t + n - 1."""

    t: int
    n: int


class Leg(NamedTuple):
    """A piece of the route: over segment j, there or back."""

    j: int
    back: bool
    keep: bool = False
    """Whether the state after the segment is kept."""


def segments(t: int, n: int, c: int) -> list[Segment]:
    """n steps from t on in segments of c; those that do not fill one come first."""
    short = [Segment(t, n % c)] if n % c else []
    return short + [Segment(i, c) for i in range(t + n % c, t + n, c)]


class Tree(NamedTuple):
    """Boundaries `first`, ..., `last` - 1, of which those on the branch of one are kept."""

    first: int
    last: int
    strides: tuple[int, ...] = (1,)
    """Of the levels, the widest first; the last is 1."""

    def has(self, i: int, target: int) -> bool:
        """Is boundary i on the branch that leads to `target`?"""
        if not self.first <= i < self.last:
            return False
        i, target = i - self.first, target - self.first
        blocks = (self.last - self.first, *self.strides)
        pairs = zip(blocks, self.strides, strict=False)
        return any(i % d == 0 and i // block == target // block for block, d in pairs)


def tree(first: int, last: int, room: int, each: int) -> Tree:
    """The tree with the fewest levels of which at most `room` boundaries are kept at once.

    A level keeps k - 1 of them in addition to the first one, so L levels of k branches hold
    L (k - 1) + 1, and reach k^L boundaries.
    """
    for levels in range(1, max(room, 2)):
        k = (room - 1) // levels + 1
        if k**levels >= last - first:
            return Tree(first, last, tuple(k**i for i in reversed(range(levels))))
    check.too_little_room(room, last - first, each)


def route(kept: set[int], at: int, tree: Tree) -> Iterator[Leg]:
    """From the last of the boundaries that are kept to the end, and back from boundary `at`."""
    kept = set(kept)
    here = max(kept) if at == tree.last else tree.last
    for j in range(here, tree.last):
        yield _there(j, tree.last - 1, tree, kept)
    for j in reversed(range(tree.first, at)):
        for i in range(max(i for i in kept if i <= j), j):
            yield _there(i, j, tree, kept)
        yield Leg(j, back=True)
        kept.discard(j)


def _there(j: int, target: int, tree: Tree, kept: set[int]) -> Leg:
    keep = tree.has(j + 1, target) and j + 1 not in kept
    if keep:
        kept.add(j + 1)
    return Leg(j, back=False, keep=keep)
