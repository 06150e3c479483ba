"""A method on a problem: the clock runs while it does, and stands while its lam is judged."""

import time
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from .method import Method
from .problem import Problem

FIRST, GROWTH = 0.03, 1.25
"""Seconds until the first look at lam, and by what they grow from one look to the next."""
GAIN = 0.002
"""A run ends whose second half made the loss less than this part lower, or not at all."""


class Program(NamedTuple):
    """A method, compiled for a problem."""

    begin: Any
    chunk: Callable[[Any, Any, Any], Any]
    """(state, step size, number of outer iterations) -> state."""
    judge: Callable[[Any], jax.Array]
    seconds: float
    """For the compiler."""


def program(problem: Problem, method: Method) -> Program:
    def chunk(S, state, rate, n):
        given = problem._replace(S=S)
        return lax.fori_loop(0, n, lambda _, state: method.step(given, state, rate), state)

    state, S = method.start(problem), problem.S
    began = time.process_time()
    rate, n = jnp.zeros((), jnp.float32), jnp.ones((), jnp.int32)
    compiled = jax.jit(chunk).lower(S, state, rate, n).compile()
    took = time.process_time() - began
    take = lambda state, rate, n: jax.block_until_ready(
        compiled(S, state, jnp.asarray(rate, jnp.float32), jnp.asarray(n, jnp.int32))
    )
    return Program(state, take, judge_of(problem), took)


def judge_of(problem: Problem) -> Callable[[jax.Array], jax.Array]:
    """lam -> loss, in one program."""
    judge = jax.jit(lambda S, lam: problem.judge(problem._replace(S=S), lam))
    return lambda lam: judge(problem.S, lam)


def follow(made: Program, rate: float, budget: float, clock: Callable[[], float]) -> dict[str, Any]:
    """Until the end of the budget, numbers that are not finite, or no gain for long."""
    state, spent, done, look = made.begin, 0.0, 0, FIRST
    seconds, iterations, losses = [], [], []
    while spent < budget:
        n = max(1, round((GROWTH - 1) * done))
        began = clock()
        state = made.chunk(state, rate, n)
        spent, done = spent + clock() - began, done + n
        if spent < look:
            continue
        look = GROWTH * spent
        loss = float(made.judge(state.lam))
        if not np.isfinite(loss):
            break
        seconds.append(spent)
        iterations.append(done)
        losses.append(loss)
        half = [loss for t, loss in zip(seconds, losses, strict=True) if t <= spent / 2]
        if spent > budget / 4 and half and min(losses) > (1 - GAIN) * min(half):
            break
    return {"seconds": seconds, "iterations": iterations, "losses": losses}
