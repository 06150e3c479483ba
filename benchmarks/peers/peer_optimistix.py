"""optimistix: `minimise` with an optax optimizer, by binomial checkpointing or at its end."""

import jax
import lineax as lx
import optimistix as optx

from . import in_jax
from .problems import Problem
from .wants import Checkpointed, Full, Implicit, NotOfferedError, Program, Want

PACKAGE = "optimistix"


def adjoint(want: Want, T: int) -> optx.AbstractAdjoint:
    match want:
        case Full():
            return optx.RecursiveCheckpointAdjoint(checkpoints=T)
        case Checkpointed(segment):
            return optx.RecursiveCheckpointAdjoint(checkpoints=max(T // segment, 1))
        case Implicit(rtol, steps):
            return optx.ImplicitAdjoint(lx.CG(rtol=rtol, atol=rtol, max_steps=steps))
    raise NotOfferedError("differentiates all steps, or solves at the end")


def build(problem: Problem, want: Want) -> Program:
    m, way = in_jax.model(problem), adjoint(want, problem.T)

    def loss(lam, S):
        mu = m.prepare(lam, S)
        solver = optx.OptaxMinimiser(m.optimizer(mu), rtol=0.0, atol=0.0)
        w = optx.minimise(
            lambda w, args: m.g(w, *args), solver, m.start(mu), (mu, S),
            max_steps=problem.T, adjoint=way, throw=False,
            tags=frozenset([lx.positive_semidefinite_tag]),
        ).value  # fmt: skip
        return m.f(w, lam, S)

    return in_jax.program(problem, jax.grad(loss))
