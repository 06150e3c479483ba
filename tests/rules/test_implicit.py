"""Implicit differentiation is right at the optimum, and says when it fails."""

import equinox as eqx
import jax
import jax.numpy as jnp
import lineax as lx
import numpy as np
import optax
import pytest
from oracle import assert_close

import bilevax as bx
from bilevax import problems

SOLVERS = {
    "default": None,
    "cg": lx.CG(rtol=1e-13, atol=1e-13),
    "gmres": lx.GMRES(rtol=1e-13, atol=1e-13),
    "bicgstab": lx.BiCGStab(rtol=1e-13, atol=1e-13),
    "lu": lx.LU(),
    "cholesky": lx.Cholesky(),
    "auto": lx.AutoLinearSolver(well_posed=True),
}


@pytest.mark.parametrize("solver", SOLVERS)
def test_closed_form_on_ridge_regression(solver):
    p = problems.ridge()
    rule = bx.Implicit(SOLVERS[solver]) if SOLVERS[solver] else bx.Implicit()
    h = bx.hypergradient(p.f, p.xi, rule, T=p.T)(p.lam, p.S).h
    assert_close(h, p.limit(p.lam, p.S), 1e-5 if solver == "default" else 1e-10)


def test_neumann_converges_to_the_closed_form():
    p = problems.ridge()
    h = bx.hypergradient(p.f, p.xi, bx.Neumann(K=1000), T=p.T)(p.lam, p.S).h
    assert_close(h, p.limit(p.lam, p.S))


@pytest.mark.parametrize("inner", [optax.sgd(0.1, momentum=0.8), optax.adam(0.01)])
def test_pytrees_and_any_optimizer(inner):
    """Eq. 11 needs only g, so the way to the optimum does not matter."""
    p = problems.logistic().with_inner(inner, T=4000)
    cg = bx.Implicit(lx.CG(rtol=1e-12, atol=1e-12))
    got = bx.hypergradient(p.f, p.xi, cg, T=p.T)(p.lam, p.S)
    descent = problems.logistic().with_inner(optax.sgd(1.0), T=4000)
    want = bx.hypergradient(p.f, descent.xi, bx.Reverse(), T=p.T)(p.lam, p.S)
    assert_close(got.h, want.h, 1e-6)


def test_report_tells_the_iterations():
    p = problems.ridge()
    few = bx.Implicit(lx.CG(rtol=0.0, atol=0.0, max_steps=3))
    out = bx.hypergradient(p.f, p.xi, few, T=10)(p.lam, p.S)
    assert int(out.report["steps"]) == 3
    out = bx.hypergradient(p.f, p.xi, bx.Implicit(lx.LU()), T=10)(p.lam, p.S)
    assert int(out.report["steps"]) == 0


def test_fixed_points_of_user_dynamics():
    """w = tanh(W w + lam): h by the implicit function theorem, with I - A unsymmetric."""
    W = jnp.asarray([[0.2, -0.5], [0.4, 0.1]])
    step = lambda s, lam, S, t: jnp.tanh(S @ s + lam)
    xi = bx.Dynamics(lambda lam, S: jnp.zeros(2), step)
    f = lambda w, lam, S: jnp.sum(w**3)
    lam = jnp.asarray([0.5, -0.3])
    gmres = bx.Implicit(lx.GMRES(rtol=1e-13, atol=1e-13))
    want = bx.hypergradient(f, xi, bx.Reverse(), T=200)(lam, W).h
    assert_close(bx.hypergradient(f, xi, gmres, T=200)(lam, W).h, want)
    assert_close(bx.hypergradient(f, xi, bx.Neumann(K=200), T=200)(lam, W).h, want)


@pytest.mark.parametrize("solver", [lx.CG(1e-6, 1e-6), lx.Cholesky()])
def test_symmetric_solvers_refuse_user_dynamics(solver):
    xi = bx.Dynamics(lambda lam, S: jnp.zeros(2), lambda s, lam, S, t: s * 0.5 + lam)
    hg = bx.hypergradient(lambda w, lam, S: jnp.sum(w), xi, bx.Implicit(solver), T=3)
    with pytest.raises(ValueError, match=r"needs a symmetric positive definite system.*GMRES"):
        hg(jnp.ones(2))


def test_a_solver_that_fails_says_so():
    """A singular Hessian: one direction that g does not see."""
    g = lambda w, lam, S: (w[0] - lam) ** 2
    xi = bx.Descent(g, bx.constant(jnp.zeros(2)), optax.sgd(0.1))
    f = lambda w, lam, S: jnp.sum((w - 1.0) ** 2)
    hg = bx.hypergradient(f, xi, bx.Implicit(), T=3)
    with pytest.raises(Exception, match="the linear solver of Implicit.*did not converge"):
        jax.block_until_ready(hg(jnp.asarray(1.0)))


def test_flat_problems_of_many_parameters_in_float32():
    """Curvatures down to 1e-3 over 20,000 weights are no reason to call it singular."""
    M = 20_000
    curvature = jnp.logspace(-3, 0, M, dtype=jnp.float32)
    g = lambda w, lam, S: jnp.sum(curvature * (w - lam) ** 2) / 2
    f = lambda w, lam, S: jnp.sum(w**2) / 2
    xi = bx.Descent(g, lambda lam, S: jnp.ones(M, jnp.float32), optax.sgd(0.5))
    for solver in (lx.CG(rtol=1e-5, atol=1e-5), lx.CG(rtol=0.0, atol=0.0, max_steps=150)):
        out = bx.hypergradient(f, xi, bx.Implicit(solver), T=3)(jnp.zeros(M, jnp.float32))
        assert_close(out.h, out.w, 1e-2)  # A = diag(curvature), B = curvature: h = alpha


H = jnp.diag(jnp.asarray([3.0, 1.0, 0.5]))


def bent(w, lam, S):
    """Curvature H, plus a task's own, which may make it indefinite."""
    return w @ H @ w / 2 + S * w[0] ** 2 / 2 - lam @ w


def at_minimum(rule, S=0.0):
    xi = bx.Descent(bent, bx.constant(jnp.zeros(3)), optax.sgd(0.3))
    f = lambda w, lam, S: jnp.sum(w**2)
    return bx.hypergradient(f, xi, rule, T=200)(jnp.ones(3), jnp.asarray(S))


def test_damping_adds_to_the_hessian():
    w = jnp.linalg.solve(H, jnp.ones(3))
    want = jnp.linalg.solve(H + 0.7 * jnp.eye(3), 2 * w)
    assert_close(at_minimum(bx.Implicit(damping=0.7)).h, want, 1e-6)
    assert_close(at_minimum(bx.Implicit(lx.LU(), damping=0.7)).h, want, 1e-9)
    with pytest.raises(ValueError, match="damping must be positive, got -1"):
        bx.Implicit(damping=-1)


def test_a_fixed_number_of_iterations_is_taken_and_is_no_failure():
    """Two steps of conjugate gradients, by hand."""
    b = 2 * jnp.linalg.solve(H, jnp.ones(3))
    r, p, u = b, b, jnp.zeros(3)
    for _ in range(2):
        a = (r @ r) / (p @ H @ p)
        u, new = u + a * p, r - a * H @ p
        p, r = new + (new @ new) / (r @ r) * p, new
    out = at_minimum(bx.Implicit(lx.CG(rtol=0, atol=0, max_steps=2)))
    assert int(out.report["steps"]) == 2
    assert_close(out.h, u, 1e-9)


FEW = lx.CG(rtol=1e-9, atol=1e-9, max_steps=1)


def test_a_solver_that_fails_warns_and_the_run_goes_on():
    with pytest.raises(eqx.EquinoxRuntimeError, match="did not converge"):
        at_minimum(bx.Implicit(FEW))
    with pytest.warns(bx.ToleranceWarning, match="did not reach its tolerance.*Give damping"):
        out = at_minimum(bx.Implicit(FEW, throw=False))
        jax.effects_barrier()
    b = 2 * jnp.linalg.solve(H, jnp.ones(3))
    u = (b @ b) / (b @ H @ b) * b  # one step
    assert_close(out.h, u, 1e-9)
    assert_close(out.report["error"], jnp.linalg.norm(H @ u - b) / jnp.linalg.norm(b), 1e-9)


def test_one_task_of_many_that_fails_is_said_once_and_ends_nothing():
    xi = bx.Descent(bent, bx.constant(jnp.full(3, 0.1)), optax.sgd(0.3))
    f = lambda w, lam, S: jnp.sum((w - 1.0) ** 2)
    tasks = iter([jnp.asarray(s) for s in [0.0, 0.5, -3.0, 1.0] * 6])  # -3: a flat direction
    rule = bx.Implicit(lx.CG(rtol=1e-8, atol=1e-8, max_steps=20), throw=False)
    with pytest.warns(bx.ToleranceWarning) as said:
        result = bx.minimize(
            f, xi, rule, 0.1 * jnp.ones(3), T=30, steps=6, optimizer=optax.sgd(0.01),
            contexts=tasks, batch=4,
        )  # fmt: skip
    assert len(result.history["value"]) == 6 and len(said) == 1
    assert np.isfinite(result.lam).all() and "error" in result.history
