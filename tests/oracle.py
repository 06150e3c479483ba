"""Answers found without bilevax's loops and derivatives."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from bilevax import _tree as tree
from bilevax.testing import unrolled

__all__ = ["assert_close", "exact", "finite_difference", "partial_sums"]


def exact(problem):
    """jax.grad of the plain Python loop."""
    return jax.jit(jax.grad(unrolled(problem)))(problem.lam)


def finite_difference(problem, direction, step=2e-2):
    """The derivative along a direction by central differences of order 8."""
    value = jax.jit(unrolled(problem))
    move = lambda c: jax.tree.map(lambda a, d: a + c * d, problem.lam, direction)
    weights = {1: 4 / 5, 2: -1 / 5, 3: 4 / 105, 4: -1 / 280}
    terms = [
        c * (float(value(move(k * step))) - float(value(move(-k * step))))
        for k, c in weights.items()
    ]
    return sum(terms) / step


def partial_sums(problem):
    """h_{T-K} for K = 0, ..., T, by Eq. 8 with A_t and B_t as dense matrices.

    The last entry, K = T + 1, is the full sum with B_0.
    """
    xi, lam, S, T = problem.xi, problem.lam, problem.S, problem.T
    v, to_lam = ravel_pytree(lam)
    states = [xi.start(lam, S)]
    advance = jax.jit(lambda s, t: xi.advance(s, lam, S, t))
    for t in range(T):
        states.append(advance(states[-1], t))
    x_T, to_x = ravel_pytree(tree.inexact(states[T]))
    merge = lambda x, s: jax.tree.map(
        lambda a, b: b if a is None else a, to_x(x), s, is_leaf=lambda a: a is None
    )
    read = lambda x: ravel_pytree(xi.read(merge(x, states[T])))[0]
    w, to_w = ravel_pytree(xi.read(states[T]))
    grad_w, grad_lam = jax.grad(lambda w, v: problem.f(to_w(w), to_lam(v), S), (0, 1))(w, v)
    alpha = np.asarray(jax.jacobian(read)(x_T)).T @ np.asarray(grad_w)
    h = np.asarray(grad_lam)
    sums = [h]

    @jax.jit
    def jacobians(s, t):
        step = lambda x, v: ravel_pytree(tree.inexact(xi.advance(merge(x, s), to_lam(v), S, t)))[0]
        A, B = jax.jacobian(step, (0, 1))(ravel_pytree(tree.inexact(s))[0], v)
        return A.T, B.T

    for t in reversed(range(T)):
        A, B = map(np.asarray, jacobians(states[t], t))
        h, alpha = h + B @ alpha, A @ alpha
        sums.append(h)
    start = lambda v: ravel_pytree(tree.inexact(xi.start(to_lam(v), S)))[0]
    sums.append(h + np.asarray(jax.jacobian(start)(v)).T @ alpha)
    return [to_lam(jnp.asarray(h)) for h in sums]


def assert_close(got, want, rtol=1e-10):
    """Relative error over the whole pytree, as one vector."""
    assert jax.tree.structure(got) == jax.tree.structure(want)
    flat = lambda x: np.concatenate([np.ravel(a) for a in jax.tree.leaves(x)])
    a, b = flat(got), flat(want)
    assert np.all(np.isfinite(a))
    error = np.linalg.norm(a - b) / max(np.linalg.norm(b), 1e-12)
    assert error <= rtol, f"relative error {error:.2e} > {rtol:.0e}"
