"""What AmIGO and stocBiO share: steps on w, then the gradient through H v = grad_w f."""

import jax
from jax import lax


def descended(problem, w, lam, t, size, steps):
    """w after some steps of gradient descent on g, each on its own rows."""

    def body(k, w):
        return w - problem.gamma * jax.grad(problem.g)(w, lam, problem.sample(steps * t + k, size))

    return lax.fori_loop(0, steps, body, w)


def product(problem, w, lam, S):
    """v -> H v."""
    return lambda v: jax.jvp(lambda w: jax.grad(problem.g)(w, lam, S), (w,), (v,))[1]


def cross(problem, w, lam, S, v):
    """J v."""
    return jax.grad(lambda lam: (jax.grad(problem.g)(w, lam, S) * v).sum())(lam)
