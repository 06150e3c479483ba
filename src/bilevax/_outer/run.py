"""A run: device calls of about a quarter of a second, and what happens between them."""

import dataclasses
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from .. import _tree as tree
from .._errors import audits, checkpoints, outcome
from .._errors import outer as check
from .._types import Context, Hyper
from .._visible import require_visible
from .batch import OuterProblem, first_warm
from .checkpoints import Folder, Saved, filled, named
from .contexts import Position, Reader, Stream
from .devices import agreed, divided, everywhere, like
from .fingerprint import fingerprint
from .history import Log
from .hyper_iteration import MAX_STEPS, OuterState, first_state, hyper_iterations
from .progress import Progress, Show
from .signals import leave

SECONDS = 0.25
"""How long a device call should take: long compared with Python, short for a person."""
FOREVER = int(np.iinfo(np.int32).max)


class Intervals(NamedTuple):
    """When a run evaluates, saves and ends, in hyper-iterations; None for never."""

    steps: int
    patience: int | None
    evaluate: int | None
    save: int | None
    save_seconds: float

    def until_next(self, tau: int) -> int:
        """How many hyper-iterations may be taken in one call."""
        ends = [every - tau % every for every in (self.evaluate, self.save) if every]
        return min([self.steps - tau, *ends])


class OuterRun:
    """A run, from its beginning or from its newest checkpoint."""

    def __init__(
        self,
        problem: OuterProblem,
        lam: Hyper,
        contexts: Iterable | None,
        intervals: Intervals,
        folder: Folder | None,
    ):
        problem, lam = everywhere((problem, lam), problem.mesh)
        found = folder.load() if folder else None
        start = found.about.get("start") if found else None  # an older file has none
        reader = None if contexts is None else Reader(contexts, start)
        S = _example(problem, reader)
        eqx.filter_eval_shape(_require_visible, problem, lam, S)
        self.intervals, self.log = intervals, Log()
        self.state = _first_state(problem, lam, S)
        places = tuple(a.sharding for a in jax.tree.leaves(self.state)) if problem.mesh else None
        self._problem = dataclasses.replace(problem, state_places=places)
        self._folder, self._saved, self._seconds_each = folder, None, None
        self._start = reader and reader.start
        self._blank, self._said = False, set[str]()
        self._fingerprint = fingerprint(problem, self.state, S, reader) if folder else {}
        at = self._resume(folder, found) if folder and found else Position(None, 0)
        left = intervals.steps - self.tau
        self._stream = reader and Stream(reader, at, problem.batch, left, problem.mesh)

    def _resume(self, folder: Folder, found: Saved) -> Position:
        checkpoints.same_run(folder.directory, found.about["fingerprint"], self._fingerprint)
        self.state = jax.tree.map(like, self.state, filled("state", self.state, found.arrays))
        self.log = Log.load(found.arrays, found.about, self.state.lam)
        self._saved = self.tau
        return Position(*found.about["position"])

    @property
    def tau(self) -> int:
        return self.log.tau

    def go_on(
        self,
        received: list[int],
        evaluate: Callable[[Hyper], Any] | None,
        shows: Sequence[Show],
        warn: Callable[[], None],
    ) -> str:
        """Until the run ends, or a signal was received; returns the reason.

        `warn` says what the rule had to say inside the program.
        """
        saved_at, shown = time.monotonic(), (self.tau, len(self.log.evaluated))
        self._evaluate(evaluate)  # what an interrupted run was about to do
        while (reason := self._reason_to_end()) is None:
            late = time.monotonic() - saved_at > self.intervals.save_seconds
            n = min(self.intervals.until_next(self.tau), self._affordable())
            n, late, number = agreed(n, late, max(received, default=0))
            if late:
                self.save()
                saved_at = time.monotonic()
            if number:
                leave(number)
            bad = self._take(n)
            warn()
            self._warn()
            if not bad.any():
                self._evaluate(evaluate)
                if self.intervals.save and self.tau % self.intervals.save == 0:
                    self.save()
            progress = Progress(self.tau, self.state.lam, *self.log.since(*shown))
            shown = self.tau, len(self.log.evaluated)
            wishes = [show(progress) for show in shows]
            if bad.any():
                check.diverged(self.tau, int(bad.argmax()), self._problem.T, self._suspects())
            if True in wishes:
                return "callback"
        return reason

    def _warn(self) -> None:
        """Once each: of an h that is zero, of a rule that was refused."""
        if self._blank and "zero" not in self._said:
            self._said.add("zero")
            outcome.not_zero(self._problem.rule, True)
        refused = self.log.first_pair("audit_refused")
        if refused is not None and "refused" not in self._said:
            self._said.add("refused")
            audits.refused(self._problem.rule, refused)

    def _reason_to_end(self) -> str | None:
        if self.tau >= self.intervals.steps:
            return "steps"
        waited = self.log.waited if self.intervals.evaluate else int(self.state.waited)
        return "patience" if self.intervals.patience and waited >= self.intervals.patience else None

    def _take(self, n: int) -> np.ndarray:
        """Take up to n hyper-iterations; returns what is not finite.

        After an error, those before it are taken again one by one, so that they are not lost.
        """
        if self._stream:
            n = min(n, self._stream.wait())
        try:
            return self._call(n)
        except Exception:
            with suppress(Exception):
                while n > 1 and not self._call(1).any():
                    n -= 1
            raise

    def _call(self, n: int) -> np.ndarray:
        """One device call; whatever fails in it, the state before it is still there."""
        contexts, offset = self._stream.contexts() if self._stream else (None, 0)
        patience = None if self.intervals.evaluate else self.intervals.patience
        numbers = [jnp.asarray(x, jnp.int32) for x in (offset, n, patience or FOREVER)]
        began = time.monotonic()
        out = hyper_iterations(self._problem, self.state, contexts, *numbers)
        state, records, bad, blank, done = out
        new = {name: np.array(a[: int(done)]) for name, a in records.items()}
        self.state = state
        self.log.add(new)
        self._blank |= bool(blank)
        if self._stream:
            self._stream.use(int(done))
        compiled = self._seconds_each is not None  # by an earlier call
        seconds = (time.monotonic() - began) / max(int(done), 1)
        self._seconds_each = seconds if compiled else SECONDS
        return np.asarray(bad)

    def _affordable(self) -> int:
        """How many hyper-iterations fill a call; one, until it is known how long they take."""
        each = self._seconds_each
        return 1 if each is None else int(np.clip(SECONDS / each, 1, MAX_STEPS))

    def _evaluate(self, evaluate: Callable[[Hyper], Any] | None) -> None:
        """If it is time, and has not been done."""
        steps, _, every, *_ = self.intervals
        due = every and self.tau and (self.tau % every == 0 or self.tau >= steps)
        if evaluate and due and self.tau not in self.log.evaluated[-1:]:
            self.log.evaluate(evaluate, self.state.lam)

    def _suspects(self) -> str:
        """Words for what is not finite in the context of the hyper-iteration that failed."""
        contexts, i = self._stream.contexts() if self._stream else (self._problem.S, ...)
        return outcome.blamed(S=jax.tree.map(lambda a: a[i], tree.inexact(contexts)))

    def save(self) -> None:
        """Write a checkpoint of where the run stands, unless it is there."""
        if self._folder is None or self._saved == self.tau:
            return
        if int(self.state.tau) != self.tau:  # a second signal came while the two were written
            return
        arrays, note = self.log.save()
        at = self._stream.position() if self._stream else Position(None, 0)
        where = {"start": self._start, "position": list(at)}
        about = note | where | {"fingerprint": self._fingerprint}
        try:
            self._folder.save(self.tau, arrays | named("state", self.state), about)
            self._saved = self.tau
        except Exception as error:  # a full disk must not end a run that is well
            checkpoints.not_saved(self._folder.directory, self.tau, error)

    def where(self) -> str:
        """In words, where the run is saved."""
        if self._folder is None or self._saved is None:
            return ""
        return f"Hyper-iteration {self._saved} is saved in {self._folder.directory}."

    def close(self) -> None:
        if self._stream:
            self._stream.close()


def _example(problem: OuterProblem, reader: Reader | None) -> Context:
    """A context, or the shapes of one."""
    if reader:
        return reader.first
    return eqx.filter_eval_shape(problem.draw, problem.key) if problem.draw else problem.S


def _require_visible(problem: OuterProblem, lam: Hyper, S: Context) -> None:
    if not problem.warm_start:
        return require_visible(problem.rule, problem.xi, lam, S, problem.f)
    xi = problem.xi.at(problem.xi.read(problem.xi.start(lam, S)))
    try:  # no rule follows lam through where a warm start begins
        require_visible(problem.rule, xi, lam, S, problem.f)
    except ValueError as error:
        check.warm_start_hides(error)


def _first_state(problem: OuterProblem, lam: Hyper, S: Context) -> OuterState:
    """On its devices, with room for what a warm start of each context begins with."""
    warm = None
    if problem.warm_start:
        warm = eqx.filter_eval_shape(partial(first_warm, problem), lam, S)
        if problem.audits and warm.memory is not None:  # pyright: ignore
            audits.two_truths(problem.rule)
        warm = tree.stack_of_zeros(problem.batch, warm)
        warm = divided(warm, problem.mesh) if problem.mesh and problem.divides_batch else warm
    return everywhere(first_state(problem, lam, warm), problem.mesh)
