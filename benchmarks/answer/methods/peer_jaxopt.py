"""jaxopt: L-BFGS from where the last one ended, differentiated implicitly."""

import jax

from ..method import Method, from_zero, moved

STEPS = 10


def step(problem, state, rate):
    import jaxopt

    S = problem.S
    solver = jaxopt.LBFGS(lambda w, lam: problem.g(w, lam, S), maxiter=STEPS, implicit_diff=True)

    def objective(lam):
        w = solver.run(state.w, lam).params
        return problem.f(w, lam, S), w

    h, w = jax.grad(objective, has_aux=True)(state.lam)
    return moved(state, rate, h, w, state.v)


def jaxopt_lbfgs() -> Method:
    return Method(from_zero, step)
