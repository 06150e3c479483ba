"""bilevax: the hyper-iteration of `minimize`, in the same compiled loop as everybody's.

T = 100 steps from the start in each hyper-iteration, or T = 10 from where the last one ended.
"""

import lineax as lx
import optax

import bilevax as bx
from bilevax._outer.audits import settled
from bilevax._outer.batch import OuterProblem
from bilevax._outer.hyper_iteration import hyper_iteration
from bilevax._outer.run import _first_state

from ..method import Method

T, WARM = 100, 10
CG = lx.CG(rtol=0, atol=0, max_steps=10)


def minimize(rule: bx.extend.AbstractRule, warm: bool = False, correct: bool = False) -> Method:
    steps = WARM if warm else T

    def outer(problem, rate):
        return OuterProblem(
            f=problem.f,
            xi=bx.Descent(problem.g, bx.constant(problem.w), optax.sgd(problem.gamma)),
            rule=rule,
            optimizer=optax.adam(rate),
            S=problem.S,
            draw=None,
            key=None,
            T=steps,
            batch=1,
            at_once=1,
            warm_start=warm,
            audits=settled(bx.Correction() if correct else None, steps),
            mesh=None,
        )

    def start(problem):
        return _first_state(outer(problem, 1.0), problem.lam, problem.S)

    return Method(start, lambda p, state, rate: hyper_iteration(outer(p, rate), state, None)[0])
