"""One call of a replayed hypergradient, from its beginning or from where its tape ends."""

import dataclasses
from collections.abc import Callable
from contextlib import closing
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import PyTree

from .._errors import outcome
from .._errors import replay as check
from .._hypergradient import Estimate
from .._loop import Back
from .._outer.devices import everywhere, mesh_of, on_device
from .._rules.reverse import Reverse
from .._types import Context, Hyper, State
from . import route
from .fed import Fed, Seen
from .fingerprint import fingerprint
from .host import size, skeleton, to_host
from .programs import (
    again,
    ahead,
    bad_step,
    begin,
    behind,
    behind_in_segments,
    finish,
    make_room,
    turn,
)
from .progress import two_way_bar
from .route import Leg, Segment
from .shardings import shardings
from .source import Source, on_devices, read_ahead
from .tape import Tape


@dataclasses.dataclass(frozen=True)
class Setup:
    """What all calls have in common."""

    f: Callable[..., Any]
    xi: Fed
    T: int
    K: int | None
    segment: int
    inner: tuple[int, ...]
    source: Source
    has_aux: bool
    progress: bool | None

    @property
    def rule(self) -> Reverse:
        return Reverse(K=self.K)

    def segments(self) -> tuple[list[Segment], int]:
        """All of them, and how many are not gone back over."""
        K = self.T if self.K is None else self.K
        early = route.segments(0, self.T - K, self.segment)
        return early + route.segments(self.T - K, K, self.segment), len(early)


class Call:
    """lam and S, and how far the two ways have been gone."""

    def __init__(self, setup: Setup, lam: Hyper, S: Context, tape: Tape):
        self._setup, self._tape = setup, tape
        self._mesh = mesh_of(None, (setup.xi, lam, S))
        self._xi, self._lam, self._S = everywhere(on_device((setup.xi, lam, S)), self._mesh)
        self._segments, first = setup.segments()
        stack, checksum = setup.source.read(self._segments[0] if tape.on_disk else Segment(0, 1))
        self._X = self._seen(0, jax.tree.map(lambda a: a[:1], stack))._replace(S=self._S)
        self._shardings = shardings(self._mesh, self._xi, self._lam, self._X)
        self._mu, s = self._begin()
        self._skeleton, last = skeleton(s), len(self._segments)
        each = max(size(to_host(s)), 1)
        room = last - first if tape.on_disk else int(min(tape.host / each, last - first))
        self._tree = route.tree(first, last, room, each)
        self._checksums: dict[int, str] = {}
        if tape.on_disk:
            tape.about = {"fingerprint": self._fingerprint(s, checksum)}
        self._turn: Any = None
        self._at: Any = None
        self._room: State | None = None  # for the states of a segment
        self._arrive(0, s)

    def go(self) -> Estimate:
        """There and back."""
        last, kept = self._tree.last, self._tape.kept()
        at = self._tape.place(last) if last in kept else last
        if kept:
            self._arrive(max(kept), self._state(max(kept)))
        if at < last:
            self._at = self._tape.get_back(at, skeleton(self._at))
            self._state(at) if at in kept else None  # for the checksum that it carries
        legs = route.route({0, *kept}, at, self._tree)
        bar = two_way_bar(self._segments, self._tree, at, self._setup.progress)
        with closing(read_ahead(self._read, legs)) as pieces, bar as show:
            for leg, (stack, checksum) in pieces:
                if self._checksums.setdefault(leg.j, checksum) != checksum:
                    check.other_batches(*self._segments[leg.j])
                self._go_back(leg, stack) if leg.back else self._go_there(leg, stack)
                show(leg)
        return self._estimate()

    def _go_there(self, leg: Leg, stack: PyTree) -> None:
        (t, n), s = self._segments[leg.j], self._state(leg.j)
        X = self._seen(t, stack)
        new, finite = ahead(self._xi, self._mu, X, s, n, self._shardings)
        if not finite:
            bad = int(bad_step(self._xi, self._mu, X, s, n))
            check.diverged(bad, self._setup.T, jax.tree.map(lambda a: a[bad - t], stack))
        i, first = leg.j + 1, self._tree.first
        old = [leg.j] if i <= first else []  # before the way back's end, only the last is needed
        self._tape.put(i, new, self._checksums[leg.j], leg.keep, old)
        self._arrive(i, new)

    def _go_back(self, leg: Leg, stack: PyTree) -> None:
        (t, n), s = self._segments[leg.j], self._state(leg.j)
        self._s = None  # the segment's own states take its room
        self._at = self._behind(self._seen(t, stack), s, n)
        self._tape.put_back(leg.j, self._at, self._tree.last)

    def _behind(self, X: Seen, s: State, n: int) -> Back:
        p, given, shardings = self._setup, (self._xi, self._mu, X), self._shardings
        if p.inner:
            return behind_in_segments(*given, s, self._at, n, p.inner, shardings)
        room = make_room(s, p.segment, shardings) if self._room is None else self._room
        self._room = again(*given, s, n, shardings, room)
        return behind(*given, self._room, self._at, n, shardings)

    def _state(self, i: int) -> State:
        """The state at boundary i: at hand, on the tape, or the first."""
        if self._s is not None and self._here == i:
            return self._s
        if i == 0:
            return self._begin()[1]
        s, checksum = self._tape.get(i, self._skeleton)
        self._checksums.setdefault(i - 1, checksum)
        return s

    def _arrive(self, i: int, s: State) -> None:
        self._here, self._s = i, s
        if i == self._tree.last and self._turn is None:
            p, T = self._setup, jnp.asarray(self._setup.T, jnp.int32)
            self._turn, self._at = turn(*self._parts(s), T, p.has_aux, self._shardings)
            outcome.finite(None, self._turn.bad, [outcome.diverged(p.T), outcome.BAD_VALUE])

    def _begin(self) -> tuple[Hyper, State]:
        p = self._setup
        return begin(p.f, self._xi, self._lam, self._X, p.rule, p.has_aux, self._shardings)

    def _read(self, leg: Leg) -> tuple[PyTree, str]:
        return self._setup.source.read(self._segments[leg.j])

    def _seen(self, t: int, stack: PyTree) -> Seen:
        """On the devices; not put there by a thread, which would not know of a local setting."""
        return Seen(None, jnp.asarray(t, jnp.int32), on_devices(stack, self._mesh))

    def _parts(self, s: State) -> tuple:
        return self._setup.f, self._xi, self._lam, self._X, self._mu, s

    def _fingerprint(self, s: State, checksum: str) -> dict[str, Any]:
        p = self._setup
        settings = {"T": p.T, "K": p.K, "segment": [p.segment, *p.inner], "batches": checksum}
        return settings | fingerprint(self._parts(s), p.has_aux, p.inner, self._shardings)

    def _estimate(self) -> Estimate:
        value, w, direct, _, moved = self._turn
        rule, whole = self._setup.rule, self._setup.K is None
        h, (bad, zero) = finish(self._xi, self._lam, self._X, self._at, direct, whole)
        outcome.not_zero(rule, not whole and bool(moved & zero))
        return outcome.finite(Estimate(value, h, w, {}), bad[None], [outcome.BAD_H])
