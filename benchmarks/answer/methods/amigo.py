"""AmIGO (Arbel, Mairal, ICLR 2022): ten steps on w and ten on the linear system, both warm."""

from functools import partial

import jax
from jax import lax
from jax.scipy.sparse.linalg import cg

from ..method import Method, from_zero, moved
from .implicit import cross, descended, product

STEPS = 10


def descent(problem, size, w, lam, t, v, alpha):
    """Gradient descent on v H v / 2 - v alpha, as for w."""

    def body(k, v):
        S = problem.sample(-1 - STEPS * t - k, size)
        return v - problem.gamma * (product(problem, w, lam, S)(v) - alpha)

    return lax.fori_loop(0, STEPS, body, v)


def conjugate(problem, size, w, lam, t, v, alpha):
    """Conjugate gradients, on all rows."""
    return cg(product(problem, w, lam, problem.S), alpha, v, tol=0.0, maxiter=STEPS)[0]


def step(solve, size, problem, state, rate):
    lam, _, w, v, t = state
    w = descended(problem, w, lam, t, size, STEPS)
    S = problem.sample(t, size)
    alpha, direct = jax.grad(problem.f, (0, 1))(w, lam, S)
    v = solve(problem, size, w, lam, t, v, alpha)
    return moved(state, rate, direct - cross(problem, w, lam, S, v), w, v)


def amigo(size: int | None = None) -> Method:
    return Method(from_zero, partial(step, descent, size))


def amigo_cg() -> Method:
    return Method(from_zero, partial(step, conjugate, None))
