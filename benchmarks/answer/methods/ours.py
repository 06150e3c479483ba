"""bilevax: the hyper-iteration of `minimize`, in the same compiled loop as everybody's.

T = 100 steps from the start in each hyper-iteration, or a few from where the last one ended.
"""

from functools import partial

import jax
import lineax as lx
import optax

import bilevax as bx
from bilevax._outer.audits import settled
from bilevax._outer.batch import OuterProblem
from bilevax._outer.hyper_iteration import hyper_iteration
from bilevax._outer.run import _first_state

from ..method import Method
from ..problem import blocks

T = 100
CG = lx.CG(rtol=0, atol=0, max_steps=10)


def minimize(
    rule: bx.extend.AbstractRule,
    T: int = T,
    warm: bool = False,
    size: int | None = None,
    correct: bool = False,
) -> Method:
    """With a size, each hyper-iteration draws so many rows."""

    def outer(problem, rate):
        drawn = size is not None
        return OuterProblem(
            f=problem.f,
            xi=bx.Descent(problem.g, bx.constant(problem.w), optax.sgd(problem.gamma)),
            rule=rule,
            optimizer=optax.adam(rate),
            S=None if drawn else problem.S,
            draw=jax.tree_util.Partial(partial(blocks, size=size), problem.S) if drawn else None,
            key=jax.random.key(0) if drawn else None,
            T=T,
            batch=1,
            at_once=1,
            warm_start=warm,
            audits=settled(bx.Correction() if correct else None, T),
            mesh=None,
        )

    def start(problem):
        return _first_state(outer(problem, 1.0), problem.lam, problem.S)

    return Method(start, lambda p, state, rate: hyper_iteration(outer(p, rate), state, None)[0])
