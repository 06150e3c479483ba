"""`replay`: the hypergradient of a run that is longer than memory."""

from collections.abc import Callable
from typing import Any

from .._dynamics import AbstractDynamics
from .._errors import check as base
from .._errors import replay as check
from .._errors import rules
from .._hypergradient import Estimate, check_dynamics, check_objective
from .._types import Context, Hyper
from .call import Call, Setup
from .fed import Fed
from .source import Source
from .store import Store
from .tape import opened


def replay(
    f: Callable[..., Any],
    xi: AbstractDynamics,
    *,
    T: int,
    batches: Any,
    segment: int | tuple[int, ...],
    K: int | None = None,
    store: Store | None = None,
    has_aux: bool = False,
    progress: bool | None = None,
) -> Callable[..., Estimate]:
    """The gradient of lam -> f(w_T(lam), lam, S), where step t sees batches[t].

    The hypergradient of `Reverse()`, for runs whose data and states fit on no device. The loop
    runs in segments. The states between them go to host memory and to disk, and on the way back
    each segment is run again from the state before it.

    **Arguments:**

    - `f`: (w, lam, S) -> scalar, the outer objective.
    - `xi`: the inner algorithm. Its init sees S, as f does. Its step t sees batches[t] in place of
        S: g is called as g(w, lam, batches[t]).
    - `T`: the number of inner steps.
    - `batches`: anything that gives the batch of step t as batches[t], a pytree of arrays, and
        gives it again on the way back: a list, an array, a `numpy.memmap`, a data set of Grain or
        PyTorch. A thread reads ahead.
    - `segment`: how many steps a segment has. The device holds the states of one segment. With
        (1000, 32) there are segments of 32 inside those of 1000, and it holds 1000/32 + 32, for
        one more forward pass; and so on.
    - `K`: go back over the last K steps only, as `Reverse(K)`; no other state is kept.
    - `store`: where to keep states: `Store("tape", host=8e9)`. With a folder, a call that was
        killed goes on where it was when the same call is made again. Default: host memory only.
    - `has_aux`: whether f returns a pair (scalar, anything else).
    - `progress`: show a progress bar. Default: on a terminal.

    **Returns:**

    A function (lam, S) -> `Estimate(value, h, w, report)`, as of `hypergradient`. It compiles
    itself at the first call. It reads from the host, so it cannot be used inside `jax.jit`.

    !!! example

        >>> import bilevax as bx, jax.numpy as jnp, numpy as np, optax
        >>> g = lambda w, lam, batch: jnp.sum((w - lam * batch) ** 2) / 2
        >>> f = lambda w, lam, S: jnp.sum(w)
        >>> xi = bx.Descent(g, bx.constant(jnp.zeros(2)), optax.sgd(0.5))
        >>> source = np.ones((6, 2), np.float32)  # source[t] is for step t
        >>> bx.replay(f, xi, T=6, batches=source, segment=2)(jnp.ones(2)).h
        Array([0.984375, 0.984375], dtype=float32)
    """
    check_objective(f)
    check_dynamics(xi)
    T = base.horizon(T)
    K = check.depth(K, T)
    outer, *inner = rules.segments(segment)
    check.segment(outer, *(("T", T) if K is None else ("K", K)))
    store = Store() if store is None else store
    base.instance(store, Store, "store", 'a store, as in bx.Store("tape")')
    setup = Setup(f, Fed(xi), T, K, outer, tuple(inner), Source(batches, T), has_aux, progress)

    def hg(lam: Hyper, S: Context = None) -> Estimate:
        check.concrete(lam, S)
        lam, S = base.floating(lam, "lam"), base.context(S)
        with opened(store) as tape:
            out = Call(setup, lam, S, tape).go()
            tape.remove(store.keep)
        return out

    return hg
