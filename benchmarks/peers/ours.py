"""bilevax."""

import lineax as lx

import bilevax as bx

from . import in_jax
from .problems import Problem
from .wants import Budget, Checkpointed, Full, Implicit, Program, Truncated, Want

PACKAGE = "bilevax"


def rule(want: Want) -> bx.extend.AbstractRule:
    match want:
        case Full():
            return bx.Reverse()
        case Checkpointed(segment):
            return bx.Reverse(segment=segment)
        case Truncated(K):
            return bx.Reverse(K=K)
        case Budget(K, memory):
            return bx.Reverse(K=K, memory=memory)
        case Implicit(rtol, steps):
            return bx.Implicit(lx.CG(rtol=rtol, atol=rtol, max_steps=steps))
    return bx.extend.parse_rule(want.text)


def build(problem: Problem, want: Want) -> Program:
    m = in_jax.model(problem)
    inner = bx.Descent(m.g, lambda mu, S: m.start(mu), m.optimizer)
    xi = bx.Prepared(m.prepare, inner) if problem.name == "Omniglot" else inner
    hg = bx.hypergradient(m.f, xi, rule(want), T=problem.T)
    return in_jax.program(problem, lambda lam, S: hg(lam, S).h)
