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

Clock = Callable[[], float]
GROWTH = 1.15
"""From one look at lam to the next, the time grows by this factor."""
PATIENCE = 4
"""A run ends that has found nothing better in this many times the seconds of its best lam."""


class Program(NamedTuple):
    """A method, compiled for a problem."""

    begin: Any
    chunk: Callable[[Any, Any, Any], Any]
    """(state, step size, number of outer iterations) -> state."""
    judge: Callable[[jax.Array], jax.Array]
    seconds: float
    """For the compiler."""


def program(problem: Problem, method: Method) -> Program:
    def chunk(S, state, rate, n):
        given = problem._replace(S=S)
        return lax.fori_loop(0, n, lambda _, state: method.step(given, state, rate), state)

    state, S = method.start(problem), problem.S
    began = time.perf_counter()
    rate, n = jnp.zeros((), jnp.float32), jnp.ones((), jnp.int32)
    compiled = jax.jit(chunk).lower(S, state, rate, n).compile()
    took = time.perf_counter() - began
    take = lambda state, rate, n: jax.block_until_ready(
        compiled(S, state, jnp.asarray(rate, jnp.float32), jnp.asarray(n, jnp.int32))
    )
    return Program(state, take, judge_of(problem), took)


def judge_of(problem: Problem) -> Callable[[jax.Array], jax.Array]:
    """lam -> loss, in one program."""
    judge = jax.jit(lambda S, lam: problem.judge(problem._replace(S=S), lam))
    return lambda lam: judge(problem.S, lam)


def follow(
    made: Program, rate: float, budget: float, target: float, clock: Clock, growth: float = GROWTH
) -> dict[str, Any]:
    """Until the target, the end of the budget, numbers that are not finite, or nothing better."""
    state, spent, done, n = made.begin, 0.0, 0, 1
    seconds, iterations, losses = [], [], []
    while spent < budget:
        began = clock()
        state = made.chunk(state, rate, n)
        spent, done = spent + clock() - began, done + n
        loss = float(made.judge(state.lam))
        seconds.append(spent)
        iterations.append(done)
        losses.append(loss)
        stale = spent > max(PATIENCE * seconds[int(np.argmin(losses))], 1.0)
        if not np.isfinite(loss) or loss <= target or stale:
            break
        n = max(1, round((growth - 1) * done))
    return {"seconds": seconds, "iterations": iterations, "losses": losses}
