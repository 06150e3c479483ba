"""`minimize`: the outer loop of Eq. 1 and Eq. 2."""

import os
import time
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from typing import Any, NamedTuple

import numpy as np
import optax
from jax.sharding import Mesh

from .._dynamics import AbstractDynamics
from .._errors import check as base
from .._errors import outer as check
from .._errors.say import said_once
from .._hypergradient import check_problem
from .._rules.base import AbstractRule
from .._types import Context, Hyper, Objective
from .average import Outer
from .checkpoints import Checkpoints
from .drive import Drive
from .journal import Best
from .places import agreed, mesh_of, on_device
from .rhythm import Rhythm
from .signals import Asked, leave, put_off
from .watch import History, Progress, Show, bar, events

FOREVER = int(np.iinfo(np.int32).max)

Draw = Callable[[Any], Context]


class Result(NamedTuple):
    """What `minimize` returns.

    !!! example

        >>> import bilevax as bx, optax
        >>> from bilevax import problems
        >>> p = problems.counterexample()
        >>> result = bx.minimize(p.f, p.xi, bx.Reverse(), p.lam, T=p.T, steps=3, S=p.S,
        ...                      optimizer=optax.sgd(0.1))
        >>> result.step, result.reason, sorted(result.history)
        (3, 'steps', ['h_norm', 'value'])
    """

    lam: Hyper
    """After the last hyper-iteration."""
    history: History
    """For every hyper-iteration: `value`, `h_norm`, and what the rule reports."""
    evaluations: History
    """For every evaluation: `step`, and the numbers that `evaluate` returned."""
    best: Best | None
    """lam, value and step of the best evaluation."""
    step: int
    """How many hyper-iterations have been taken."""
    reason: str
    """Why the run ended: "steps", "patience" or "callback"."""


def minimize(
    f: Objective,
    xi: AbstractDynamics,
    rule: AbstractRule,
    lam0: Hyper,
    *,
    T: int,
    steps: int,
    optimizer: optax.GradientTransformation,
    S: Context = None,
    contexts: Draw | Iterable[Context] | None = None,
    batch: int = 1,
    at_once: int | None = None,
    key: Any = None,
    warm_start: bool = False,
    mesh: Mesh | None = None,
    evaluate: Callable[[Hyper], Any] | None = None,
    evaluate_every: int = 1,
    patience: int | None = None,
    callback: Callable[[Progress], Any] | None = None,
    progress: bool | None = None,
    log_dir: str | os.PathLike | None = None,
    checkpoint_dir: str | os.PathLike | None = None,
    checkpoint_every: int | None = None,
    checkpoint_seconds: float = 60.0,
    keep: int = 3,
) -> Result:
    """Minimise lam -> f(w_T(lam), lam, S), or its mean over contexts S (Eq. 1, Eq. 2).

    With a `checkpoint_dir`, the same call goes on where the last one stopped, to the same
    bits: whether it was interrupted, killed, or asked for fewer `steps`.

    **Arguments:**

    - `f`, `xi`, `rule`, `T`: as in `hypergradient`.
    - `lam0`: where to begin.
    - `steps`: how many hyper-iterations in all.
    - `optimizer`: any optax optimizer. `decaying` and `first_update` are the paper's habits.
    - `S`: the context of a deterministic problem.
    - `contexts`: instead of S, a function key -> S, which is compiled and drawn from on the
        device (put its data into it with `jax.tree_util.Partial(draw, data)`); or a Python
        iterator of contexts, read ahead in a thread.
    - `batch`: contexts in each hyper-iteration; h is their mean.
    - `at_once`: how many of them (on each device) go through vmap together; the rest waits.
        Less memory, the same result. Default: all.
    - `key`: for a function `contexts`.
    - `warm_start`: begin each inner loop at the w_T of the last one, in place of `init`; its
        dependence on lam is not followed, under any rule. The optimizer inside begins anew.
    - `mesh`: devices that share the batch. All processes make the same call.
    - `evaluate`: lam -> number, or dict of numbers, called after every `evaluate_every`
        hyper-iterations and at the end.
    - `patience`: stop after so many evaluations without a better one (smaller, by the first
        number); without `evaluate`, after so many hyper-iterations without a smaller value.
    - `callback`: called a few times a second with a `Progress(step, lam, history)`; return
        True to stop.
    - `progress`: show a progress bar. Default: on a terminal.
    - `log_dir`: write event files for TensorBoard.
    - `checkpoint_dir`: save the run here, and go on from what is there.
    - `checkpoint_every`: save after so many hyper-iterations, beside
    - `checkpoint_seconds`: save after so much time.
    - `keep`: how many checkpoints to keep.

    **Returns:**

    `Result(lam, history, evaluations, best, step, reason)`.

    **Raises:**

    `DivergenceError`, with the `result` so far, when f, w_T, h or lam is not finite.
    `SettingsError` when `checkpoint_dir` holds another run.

    !!! example

        >>> import bilevax as bx, jax.numpy as jnp, optax
        >>> g = lambda w, lam, S: jnp.sum((w - lam) ** 2) / 2
        >>> f = lambda w, lam, S: jnp.sum((w - 1.0) ** 2)
        >>> xi = bx.Descent(g, bx.constant(jnp.zeros(2)), optax.sgd(0.5))
        >>> result = bx.minimize(f, xi, bx.Reverse(), jnp.zeros(2), T=9, steps=50,
        ...                      optimizer=optax.sgd(0.2))
        >>> bool(jnp.allclose(result.lam, 1.0, atol=0.01)), result.history["value"].shape
        (True, (50,))
    """
    check_problem(f, xi, rule)
    check.optimizer(optimizer)
    check.mesh(mesh)
    check.one_source(S, contexts)
    source = check.kind(contexts)
    mesh = mesh_of(mesh, (S, xi, lam0))
    outer = Outer(
        f=f,
        xi=on_device(xi),
        rule=rule,
        optimizer=optax.with_extra_args_support(optimizer),
        S=on_device(S),
        draw=contexts if source == "sampler" else None,
        key=check.key_for(source, key),
        T=base.horizon(T),
        batch=batch,
        at_once=check.batches(source, batch, at_once, mesh.size if mesh else 1),
        warm=warm_start,
        mesh=mesh,
    )
    every = evaluate_every if evaluate else None
    rhythm = Rhythm(steps, every, checkpoint_every, checkpoint_seconds, patience).check()
    base.integer(keep, "keep", "give the number of checkpoints to keep")
    checkpoints = Checkpoints(checkpoint_dir, keep) if checkpoint_dir is not None else None
    lam0 = base.floating(lam0, "lam0")
    stream: Any = contexts if source == "stream" else None
    drive = Drive(outer, lam0, stream, steps, checkpoints)
    with ExitStack() as stack:
        stack.callback(drive.close)
        stack.enter_context(said_once())
        asked = stack.enter_context(put_off())
        shows = [
            stack.enter_context(bar(steps, drive.tau, progress)),
            stack.enter_context(events(log_dir, drive.tau)),
        ]
        try:
            reason = _loop(drive, rhythm, asked, shows, evaluate, callback)
        except BaseException as error:  # of evaluate, of an iterator, of a signal: lose nothing
            drive.save()
            check.stopped(error, drive.where(), _result(drive, "stopped"))
            raise
        drive.save()
        return _result(drive, reason)


def _loop(
    drive: Drive,
    rhythm: Rhythm,
    asked: Asked,
    shows: list[Show],
    evaluate: Callable[[Hyper], Any] | None,
    callback: Callable[[Progress], Any] | None,
) -> str:
    """Until the run is over; returns why."""
    watched = rhythm.patience if rhythm.patience and not evaluate else FOREVER
    saved_at = time.monotonic()
    while (reason := _over(drive, rhythm)) is None:
        late = time.monotonic() - saved_at > rhythm.seconds
        n, late, number = agreed(min(rhythm.until(drive.tau), drive.enough()), late, asked.signal)
        if late:
            drive.save()
            saved_at = time.monotonic()
        if number:
            leave(number)
        new, bad = drive.go(n, watched)
        for show in shows:
            show(drive.tau, new)
        if bad.any():
            check.diverged(drive.tau, int(bad.argmax()), drive.T, drive.suspects())
        if evaluate and rhythm.evaluates(drive.tau):
            drive.journal.evaluate(evaluate, drive.lam)
        if rhythm.saves(drive.tau):
            drive.save()
        if callback and callback(Progress(drive.tau, drive.lam, new)) is True:
            return "callback"
    return reason


def _over(drive: Drive, rhythm: Rhythm) -> str | None:
    if drive.tau >= rhythm.steps:
        return "steps"
    waited = drive.journal.waited if rhythm.evaluate else int(drive.run.waited)
    return "patience" if rhythm.patience and waited >= rhythm.patience else None


def _result(drive: Drive, reason: str) -> Result:
    journal = drive.journal
    best = journal.best
    return Result(drive.lam, journal.history, journal.evaluations, best, drive.tau, reason)
