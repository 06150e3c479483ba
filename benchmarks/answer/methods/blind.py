"""Random search and Optuna's TPE: no gradients, one training run to the end for each trial."""

from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from ..follow import Program, judge_of

LOW, HIGH = -8.0, 4.0
"""Where lam is looked for."""
Trial = tuple[np.ndarray, Callable[[float], None]]
"""A lam, and whom to tell its loss."""


class Best(NamedTuple):
    """So far."""

    lam: np.ndarray
    loss: float


def random_search(problem) -> Program:
    rng = np.random.default_rng(0)
    return _program(problem, lambda: (rng.uniform(LOW, HIGH, problem.lam.shape), lambda loss: None))


def tpe(problem) -> Program:
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    study = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=0))

    def ask() -> Trial:
        trial = study.ask()
        lam = [trial.suggest_float(str(i), LOW, HIGH) for i in range(problem.lam.size)]
        return np.asarray(lam), lambda loss: study.tell(trial, loss)

    return _program(problem, ask)


def _program(problem, ask: Callable[[], Trial]) -> Program:
    judge = judge_of(problem)

    def chunk(best: Best, rate: float, n: int) -> Best:
        del rate
        for _ in range(n):
            lam, tell = ask()
            loss = float(judge(jnp.asarray(lam, problem.lam.dtype)))
            tell(loss)
            best = Best(lam, loss) if loss < best.loss else best
        return best

    begin = Best(np.asarray(problem.lam), float(judge(problem.lam)))
    return Program(begin, chunk, lambda lam: judge(jnp.asarray(lam, problem.lam.dtype)), 0.0)


BLIND = {"random search": random_search, "Optuna: TPE": tpe}
