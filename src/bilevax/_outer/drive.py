"""A run on its way: device calls of about a quarter of a second, and what lies between."""

import dataclasses
import time
from collections.abc import Iterable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from .. import _tree as tree
from .._errors import check as base
from .._errors import outer as check
from .._types import Context, Hyper, Params
from .._visible import require_visible
from .average import Outer
from .checkpoints import Checkpoints
from .contexts import Position, Reader, Stream
from .journal import Journal, filled, named
from .loop import MOST, Run, Turn, advance, begin
from .places import copied, divided, everywhere
from .settings import describe
from .watch import History

CALL = 0.25
"""Seconds that a device call should take: long against Python, short for a person."""


class Drive:
    """A run, from its beginning or from its newest checkpoint."""

    def __init__(
        self,
        outer: Outer,
        lam: Hyper,
        contexts: Iterable | None,
        steps: int,
        checkpoints: Checkpoints | None,
    ):
        outer, lam = everywhere((outer, lam), outer.mesh)
        reader = None if contexts is None else Reader(contexts)
        S = _example(outer, reader)
        eqx.filter_eval_shape(_require_visible, outer, lam, S)
        self._checkpoints, self._pace, self._saved_at = checkpoints, None, None
        self._settings = describe(outer, lam, S, reader) if checkpoints else {}
        self.journal = Journal()
        self.run = _placed(outer, begin(outer, lam, _first_w(outer, lam, S)))
        places = tuple(a.sharding for a in jax.tree.leaves(self.run)) if outer.mesh else None
        self._outer = dataclasses.replace(outer, places=places)
        at = self._resume(checkpoints) if checkpoints else Position(None, 0)
        left = steps - self.journal.tau
        self._stream = reader and Stream(reader, at, outer.batch, left, outer.mesh)

    def _resume(self, checkpoints: Checkpoints) -> Position:
        def wanted(about):  # the arrays, after a look at whether they are of this run
            check.same_settings(checkpoints.directory, about["settings"], self._settings)
            return Journal.wanted(about, self.run.lam) | named("run", self.run)

        saved = checkpoints.load(wanted)
        if saved is None:
            return Position(None, 0)
        self.run = filled("run", self.run, saved.arrays)
        self.journal = Journal.load(saved.arrays, saved.about, self.run.lam)
        self._saved_at = self.journal.tau
        return Position(*saved.about["position"])

    @property
    def tau(self) -> int:
        return self.journal.tau

    @property
    def T(self) -> int:
        return self._outer.T

    def suspects(self) -> list[str]:
        """Names of what is not finite in the context of the hyper-iteration that failed."""
        S = self._stream.current() if self._stream else self._outer.S
        leaves = jax.tree_util.tree_leaves_with_path(tree.inexact(S))
        return [base.name_of("S", path) for path, a in leaves if not bool(jnp.isfinite(a).all())]

    def where(self) -> str:
        """In words, where the run is kept."""
        if self._checkpoints is None or self._saved_at is None:
            return ""
        return f"Hyper-iteration {self._saved_at} is saved in {self._checkpoints.directory}."

    @property
    def lam(self) -> Hyper:
        """A copy: the run's own is overwritten by the next call."""
        return copied(self.run.lam)

    def go(self, n: int, patience: int) -> tuple[History, np.ndarray]:
        """Up to n hyper-iterations in one call: their records, and what was not finite."""
        contexts, offset, most = self._stream.ready() if self._stream else (None, 0, n)
        number = lambda x: jnp.asarray(x, jnp.int32)
        turn = Turn(self._outer, contexts, *map(number, (offset, min(n, most), patience)))
        began = time.monotonic()
        self.run, records, bad, done = advance(turn, self.run)
        new = {name: np.array(a[: int(done)]) for name, a in records.items()}
        self._keep_pace(len(new["value"]), time.monotonic() - began)
        if self._stream:
            self._stream.use(len(new["value"]))
        self.journal.add(new)
        return new, np.asarray(bad)

    def enough(self) -> int:
        """How many hyper-iterations fill a call; one, until their pace is known."""
        return 1 if self._pace is None else int(np.clip(CALL / self._pace, 1, MOST))

    def _keep_pace(self, n: int, seconds: float) -> None:
        compiled = self._pace is not None
        self._pace = seconds / max(n, 1) if compiled else CALL  # the first call compiles

    def save(self) -> None:
        """Write a checkpoint of where the run stands, unless it is there."""
        if self._checkpoints is None or self._saved_at == self.tau:
            return
        arrays, note = self.journal.save()
        at = self._stream.position() if self._stream else Position(None, 0)
        about = note | {"settings": self._settings, "position": list(at)}
        try:
            self._checkpoints.save(self.tau, arrays | named("run", self.run), about)
            self._saved_at = self.tau
        except Exception as error:  # a full disk must not end a run that is well
            check.not_saved(self._checkpoints.directory, self.tau, error)

    def close(self) -> None:
        if self._stream:
            self._stream.close()
        if self._checkpoints:
            self._checkpoints.close()


def _example(outer: Outer, reader: Reader | None) -> Context:
    """A context, or the shapes of one."""
    if reader:
        return reader.peek()
    return eqx.filter_eval_shape(outer.draw, outer.key) if outer.draw else outer.S


def _require_visible(outer: Outer, lam: Hyper, S: Context) -> None:
    if not outer.warm:
        return require_visible(outer.rule, outer.xi, lam, S, outer.T, outer.f)
    xi = outer.xi.at(outer.xi.read(outer.xi.start(lam, S)))
    try:  # nothing is seen through the initialisation
        require_visible(outer.rule, xi, lam, S, outer.T, outer.f)
    except ValueError as error:
        check.warm_start_hides(error)


def _first_w(outer: Outer, lam: Hyper, S: Context) -> Params | None:
    """Room for w_T of each context, if there is to be a warm start."""
    if not outer.warm:
        return None
    w = eqx.filter_eval_shape(lambda lam, S: outer.xi.read(outer.xi.start(lam, S)), lam, S)
    return jax.tree.map(lambda a: jnp.zeros((outer.batch, *a.shape), a.dtype), w)


def _placed(outer: Outer, run: Run) -> Run:
    """A copy of everything (what is donated must not be the user's), on its devices."""
    w = divided(run.w, outer.mesh) if outer.mesh and outer.spread else run.w
    return copied(everywhere(run._replace(w=w), outer.mesh))
