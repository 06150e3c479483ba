"""`minimize`: the outer loop of Eq. 1 and Eq. 2."""

import functools
import os
from collections.abc import Callable, Iterable
from contextlib import ExitStack, suppress
from typing import Any, NamedTuple, TypeVar

import optax
from jax.sharding import Mesh

from .._dynamics import AbstractDynamics
from .._errors import check as base
from .._errors import outer as check
from .._errors.audits import audited
from .._errors.checkpoints import CheckpointWarning
from .._errors.say import said_once
from .._hypergradient import check_problem, loss_of
from .._rules.base import AbstractRule
from .._types import Context, Hyper, Objective
from .audits import Audit, Correction, settled
from .batch import OuterProblem
from .checkpoints import Checkpoint, opened
from .devices import mesh_of, on_device
from .history import Best, History
from .progress import Progress, event_files, progress_bar
from .run import Intervals, OuterRun
from .signals import deferred_signals


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
    """For every hyper-iteration: `value`, `h_norm`, what the rule and what audits report."""
    evaluations: History
    """For every evaluation: `step`, and the numbers that `evaluate` returned."""
    best: Best | None
    """lam, value and step of the best evaluation."""
    step: int
    """How many hyper-iterations have been taken."""
    reason: str
    """Why the run ended: "steps", "patience", "callback", or "error"."""
    error: Exception | None = None
    """What went wrong, if the run was called with `throw=False`."""


Function = TypeVar("Function", bound=Callable[..., Any])


def _with_old_arguments(fun: Function) -> Function:
    """The names that arguments had until version 0.1."""
    of_checkpoint = {"checkpoint_dir": "directory", "checkpoint_every": "every"}
    of_checkpoint |= {"checkpoint_seconds": "seconds", "keep": "keep"}

    @functools.wraps(fun)
    def wrapper(*args, **given):
        old = {new: given.pop(name) for name, new in of_checkpoint.items() if name in given}
        if old:
            check.renamed_argument(
                "checkpoint_dir", 'checkpoint=bx.Checkpoint("runs/a", every=100)'
            )
            given["checkpoint"] = Checkpoint(**old) if old.get("directory") is not None else None
        if "lam0" in given:
            check.renamed_argument("lam0", "lam")
            given["lam"] = given.pop("lam0")
        return fun(*args, **given)

    return wrapper  # pyright: ignore


@_with_old_arguments
def minimize(
    f: Objective,
    xi: AbstractDynamics,
    rule: AbstractRule,
    lam: Hyper,
    *,
    T: int,
    steps: int,
    optimizer: optax.GradientTransformation,
    S: Context = None,
    contexts: Callable[[Any], Context] | Iterable[Context] | None = None,
    batch: int = 1,
    at_once: int | None = None,
    key: Any = None,
    warm_start: bool = False,
    mesh: Mesh | None = None,
    correct: bool | Correction | None = None,
    audit: bool | Audit | None = None,
    evaluate: Callable[[Hyper], Any] | None = None,
    evaluate_every: int = 1,
    patience: int | None = None,
    callback: Callable[[Progress], Any] | None = None,
    progress: bool | None = None,
    log_dir: str | os.PathLike | None = None,
    checkpoint: Checkpoint | str | os.PathLike | None = None,
    has_aux: bool = False,
    throw: bool = True,
) -> Result:
    """Minimise lam -> f(w_T(lam), lam, S), or its mean over contexts S (Eq. 1, Eq. 2).

    With a `checkpoint`, the same call goes on where the last one stopped, to the same bits:
    whether it was interrupted, killed, or asked for fewer `steps`.

    **Arguments:**

    - `f`, `xi`, `rule`, `T`: as in `hypergradient`.
    - `lam`: where to begin.
    - `steps`: how many hyper-iterations in all.
    - `optimizer`: any optax optimizer. The paper uses `inverse_sqrt_schedule` for its step size
        and `scale_first_update`.
    - `S`: the context of a deterministic problem.
    - `contexts`: instead of S, a function key -> S, which is compiled and runs on the device
        (give it data with `jax.tree_util.Partial(draw, data)`); or a Python iterator of
        contexts, which a thread reads ahead.
    - `batch`: the number of contexts in each hyper-iteration; h is their mean.
    - `at_once`: how many of them (on each device) go through vmap together. Fewer need less
        memory and give the same result. Default: all.
    - `key`: a random key, if `contexts` is a function.
    - `warm_start`: begin each inner loop at the w_T of the last one instead of at `init`. No
        rule follows how that w_T depends on lam. The inner optimizer starts without memory.
        `Neumann` and `Implicit` begin at the last solution of their linear system, too.
    - `correct`: remove the rule's bias: compare it now and then with an exact rule, and correct it
        by the difference until the next time. For a fixed S only. `Correction(share=0.2)` says how
        much of the time that may take.
    - `audit`: compare the rule now and then with an exact one and report how good it is, without
        changing the run. `Audit(share=0.05)` says how much of the time that may take.
    - `mesh`: devices that share the batch. All processes make the same call.
    - `evaluate`: a function lam -> number, or dict of numbers, called after every
        `evaluate_every` hyper-iterations and at the end.
    - `patience`: stop after so many evaluations without a better one (the first number of a
        better one is smaller); without `evaluate`, after so many hyper-iterations without a
        smaller value.
    - `callback`: called a few times a second with a `Progress`, which holds the records since
        the last call; return True to stop.
    - `progress`: show a progress bar. Default: on a terminal.
    - `log_dir`: write event files for TensorBoard into this folder.
    - `checkpoint`: save the run in this folder, and go on from what is there. For more choices
        give a `Checkpoint(folder, every=100)`.
    - `has_aux`: whether f returns a pair (scalar, anything else). A run keeps the scalar;
        `evaluate` is for what else you want to know.
    - `throw`: if False, a run that diverges, or whose solver fails, is returned with its `error`
        instead of raising it: for sweeps over settings.

    **Returns:**

    `Result(lam, history, evaluations, best, step, reason, error)`.

    **Raises:**

    `DivergenceError` when f, w_T, h or lam is not finite. Every error that ends a run has the
    run so far as its attribute `result`. `CheckpointMismatchError` when `checkpoint` holds
    another run.

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
    f = loss_of(f, has_aux)
    check.optimizer(optimizer)
    check.mesh(mesh)
    check.one_source(S, contexts)
    check.on_host(lam, S)
    source = check.kind(contexts)
    audits = audited(correct, audit, (Correction, Audit), contexts)
    mesh = mesh_of(mesh, (S, xi, lam))
    batch, at_once = check.batches(source, batch, at_once, mesh.size if mesh else 1)
    problem = OuterProblem(
        f=f,
        xi=on_device(xi),
        rule=rule,
        optimizer=optimizer,
        S=on_device(base.context(S)),
        draw=contexts if source == "sampler" else None,
        key=check.key_for(source, key),
        T=base.horizon(T),
        batch=batch,
        at_once=at_once,
        warm_start=warm_start,
        audits=settled(audits, T),
        mesh=mesh,
    )
    check.intervals(steps, evaluate_every=evaluate_every, patience=patience)
    if checkpoint is not None and not isinstance(checkpoint, Checkpoint):
        checkpoint = Checkpoint(checkpoint)
    every, seconds = (checkpoint.every, checkpoint.seconds) if checkpoint else (None, 60.0)
    intervals = Intervals(steps, patience, evaluate_every if evaluate else None, every, seconds)
    stream: Any = contexts if source == "stream" else None
    with ExitStack() as stack:
        folder = stack.enter_context(opened(checkpoint))
        run = OuterRun(problem, base.floating(lam, "lam"), stream, intervals, folder)
        stack.callback(run.close)
        warn = stack.enter_context(said_once())
        received = stack.enter_context(deferred_signals())
        shows = [
            stack.enter_context(progress_bar(steps, run.tau, progress)),
            stack.enter_context(event_files(log_dir, run.tau)),
        ]
        try:
            shows = [*shows, callback] if callback else shows
            reason = run.go_on(received, evaluate, shows, warn)
            run.save()
        except BaseException as error:  # also of evaluate, of an iterator, of a signal
            with suppress(CheckpointWarning):  # if it is an error, it is this one, or less than it
                run.save()
            result = _result(run, "error")
            if not throw and isinstance(error, check.NUMERICAL):
                return result._replace(error=error.with_traceback(None))
            check.stopped(error, run.where(), result)
            raise
        return _result(run, reason)


def _result(run: OuterRun, reason: str) -> Result:
    log = run.log
    return Result(run.state.lam, log.history, log.evaluations, log.best, run.tau, reason)
