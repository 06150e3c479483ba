"""F2SA (Kwon, Kwon, Wright, Nowak, ICML 2023): no second derivatives, a penalty that grows.

y follows argmin g and z follows argmin f + sigma g; sigma grows like the third root of the
iteration, as the paper has it where there is no noise.
"""

from functools import partial

import jax
import jax.numpy as jnp
from jax import lax

from ..method import Method, from_w, moved

STEPS = 10


def step(size, problem, state, rate):
    f, g, gamma = problem.f, problem.g, problem.gamma
    lam, _, y, z, t = state
    sigma = jnp.cbrt(1.0 + t)

    def body(k, carry):
        y, z = carry
        S = problem.sample(STEPS * t + k, size)
        pulled = jax.grad(lambda z: f(z, lam, S) + sigma * g(z, lam, S))(z)
        return y - gamma * jax.grad(g)(y, lam, S), z - gamma / (1 + sigma) * pulled

    y, z = lax.fori_loop(0, STEPS, body, (y, z))
    S = problem.sample(-1 - t, size)
    in_lam = lambda loss, w: jax.grad(loss, 1)(w, lam, S)
    h = in_lam(f, z) + sigma * (in_lam(g, z) - in_lam(g, y))
    return moved(state, rate, h, y, z)


def f2sa(size: int | None = None) -> Method:
    return Method(from_w, partial(step, size))
