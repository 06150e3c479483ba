"""stocBiO (Ji, Yang, Liang, ICML 2021): ten warm steps on w, a Neumann series of ten terms."""

from functools import partial

import jax
from jax import lax

from ..method import Method, from_zero, moved
from .implicit import cross, descended, product

STEPS, TERMS = 10, 10


def step(size, problem, state, rate):
    lam, _, w, _, t = state
    w = descended(problem, w, lam, t, size, STEPS)
    S, gamma = problem.sample(t, size), problem.gamma
    alpha, direct = jax.grad(problem.f, (0, 1))(w, lam, S)

    def body(k, carry):
        power, total = carry
        rows = problem.sample(-1 - TERMS * t - k, size)
        power = power - gamma * product(problem, w, lam, rows)(power)  # (I - gamma H)^k alpha
        return power, total + power

    _, total = lax.fori_loop(0, TERMS - 1, body, (alpha, alpha))
    v = gamma * total
    return moved(state, rate, direct - cross(problem, w, lam, S, v), w, v)


def stocbio(size: int | None = None) -> Method:
    return Method(from_zero, partial(step, size))
