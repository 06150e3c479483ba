"""SOBA (Dagréou, Ablin, Vaiter, Moreau, NeurIPS 2022): one step of each, all from one iterate."""

from functools import partial

import jax

from ..method import Method, from_zero, moved


def step(size, problem, state, rate):
    lam, _, w, v, t = state
    S = problem.sample(t, size)
    grad_w, pull = jax.vjp(lambda w, lam: jax.grad(problem.g)(w, lam, S), w, lam)
    Hv, Jv = pull(v)
    alpha, direct = jax.grad(problem.f, (0, 1))(w, lam, S)
    h, gamma = direct - Jv, problem.gamma
    return moved(state, rate, h, w - gamma * grad_w, v - gamma * (Hv - alpha))


def soba(size: int | None = None) -> Method:
    return Method(from_zero, partial(step, size))
