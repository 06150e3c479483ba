"""BOME (Ye, Liu, Wright, Stone, Liu, NeurIPS 2022): descent on f, held to q = g - g(w_T) = 0.

w and lam move together along grad f + mu grad q, with the paper's T = 10 and eta = 0.5. They
share a step size, which must go to zero for an unbiased limit: that of w is rate * gamma.
"""

import jax
import jax.numpy as jnp

from ..method import Method, from_zero, moved
from .implicit import descended

STEPS, ETA = 10, 0.5


def step(problem, state, rate):
    lam, _, w, v, t = state
    S = problem.S
    ahead = descended(problem, w, lam, t, None, STEPS)
    f_w, f_lam = jax.grad(problem.f, (0, 1))(w, lam, S)
    q_w, q_lam = jax.grad(problem.g, (0, 1))(w, lam, S)
    q_lam = q_lam - jax.grad(problem.g, 1)(ahead, lam, S)
    square = jnp.vdot(q_w, q_w) + jnp.vdot(q_lam, q_lam)
    inner = jnp.vdot(f_w, q_w) + jnp.vdot(f_lam, q_lam)
    mu = jnp.maximum(ETA * square - inner, 0) / jnp.maximum(square, jnp.finfo(w.dtype).tiny)
    w = w - rate * problem.gamma * (f_w + mu * q_w)
    return moved(state, rate, f_lam + mu * q_lam, w, v)


def bome() -> Method:
    return Method(from_zero, step)
