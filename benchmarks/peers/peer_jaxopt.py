"""jaxopt 0.8.5: a solver that is unrolled (`implicit_diff=False`), or differentiated at its end."""

from functools import partial

import jax
import jaxopt

from . import in_jax
from .problems import Adam, Problem
from .wants import Full, Implicit, NotOfferedError, Program, Want

PACKAGE = "jaxopt"


def build(problem: Problem, want: Want) -> Program:
    if not isinstance(want, (Full, Implicit)):
        raise NotOfferedError("unrolls all steps, or solves at the end")
    m = in_jax.model(problem)
    at_end = isinstance(want, Implicit)
    cg = jaxopt.linear_solve.solve_cg
    solve = partial(cg, tol=want.rtol, maxiter=want.steps) if at_end else None
    same = {"maxiter": problem.T, "tol": 0.0, "implicit_diff": at_end, "implicit_diff_solve": solve}

    def loss(lam, S):
        mu = m.prepare(lam, S)
        if isinstance(problem.inner, Adam) or problem.inner.rate is None:
            solver = jaxopt.OptaxSolver(m.g, m.optimizer(mu), **same)
        else:
            rate = problem.inner.rate
            solver = jaxopt.GradientDescent(m.g, stepsize=rate, acceleration=False, **same)
        w = solver.run(m.start(mu), mu, S).params
        return m.f(w, lam, S)

    return in_jax.program(problem, jax.grad(loss))
