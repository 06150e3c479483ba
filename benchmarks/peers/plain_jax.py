"""JAX without a library, as a careful user writes it: jax.grad through a scan."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import optax
from jax import lax

from . import in_jax
from .problems import Problem
from .wants import Checkpointed, Full, Implicit, NotOfferedError, Program, Truncated, Want

PACKAGE = "jax"


def stepper(m: in_jax.Model, mu, S) -> Callable:
    """One inner step, (w, state) -> (w, state), shaped for `lax.scan`."""
    optimizer = m.optimizer(mu)

    def step(carry, _):
        w, state = carry
        updates, state = optimizer.update(jax.grad(m.g)(w, mu, S), state, w)
        return (optax.apply_updates(w, updates), state), None

    return step


def first(m: in_jax.Model, mu):
    w = m.start(mu)
    return w, m.optimizer(mu).init(w)


def unrolled(m: in_jax.Model, problem: Problem, want: Want, each: Callable) -> Callable:
    """(lam, S) -> f at w_T; `each` is what is done to a step that is differentiated."""
    T = problem.T

    def loss(lam, S):
        mu = m.prepare(lam, S)
        step = stepper(m, mu, S)
        carry, live = first(m, mu), T
        if isinstance(want, Truncated):
            live = min(want.K, T)
            blind = stepper(m, lax.stop_gradient(mu), S)
            carry = lax.scan(blind, lax.stop_gradient(carry), None, length=T - live)[0]
            carry = lax.stop_gradient(carry) if live < T else first(m, mu)
        if isinstance(want, Checkpointed):
            segment = jax.checkpoint(lambda s, _: lax.scan(step, s, None, length=want.segment))
            carry = lax.scan(segment, carry, None, length=T // want.segment)[0]
            live = T % want.segment
        (w, _), _ = lax.scan(each(step), carry, None, length=live)
        return m.f(w, lam, S)

    return loss


def at_optimum(m: in_jax.Model, problem: Problem) -> Callable:
    """Eq. 11 with a dense Hessian: what implicit differentiation has to give."""

    def h(lam, S):
        mu = m.prepare(lam, S)
        (w, _), _ = lax.scan(stepper(m, mu, S), first(m, mu), None, length=problem.T)
        flat, back = jax.flatten_util.ravel_pytree(w)
        slope = lambda v, lam: jax.grad(lambda v: m.g(back(v), m.prepare(lam, S), S))(v)
        H = jax.jacfwd(slope)(flat, lam)
        alpha, direct = jax.grad(lambda v, lam: m.f(back(v), lam, S), (0, 1))(flat, lam)
        (through,) = jax.vjp(lambda lam: slope(flat, lam), lam)[1](jnp.linalg.solve(H, alpha))
        return jax.tree.map(jnp.subtract, direct, through)

    return h


def build(problem: Problem, want: Want) -> Program:
    if not isinstance(want, (Full, Truncated)):
        raise NotOfferedError("written without jax.checkpoint and without a solver")
    loss = unrolled(in_jax.model(problem), problem, want, lambda step: step)
    return in_jax.program(problem, jax.grad(loss))


def reference(problem: Problem, want: Want) -> Program:
    """What everybody is compared with."""
    m = in_jax.model(problem)
    if isinstance(want, Implicit):
        return in_jax.program(problem, at_optimum(m, problem))
    return in_jax.program(problem, jax.grad(unrolled(m, problem, want, jax.checkpoint)))
