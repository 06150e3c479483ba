"""The paper's theorems, run: bounds that are never violated, limits that are reached or missed."""

import jax
import jax.numpy as jnp
import lineax as lx
import numpy as np
import optax
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import bilevax as bx
from bilevax import problems

BEND = 0.5  # times log cosh, whose second derivative lies between 0 and 1


def g(w, lam, S):
    own = w @ S["H"] @ w / 2 + BEND * jnp.sum(jnp.log(jnp.cosh(w)))
    return own - lam @ S["C"] @ w


def f(w, lam, S):
    return jnp.sum((w - S["b"]) ** 2) / 2


def strongly_convex(seed, share, M=4, N=6, kappa=8.0):
    """(lam, S): g is 1/kappa-convex and (1 + BEND)-smooth, gamma is so much of 1/beta."""
    rng = np.random.default_rng(seed)
    basis, _ = np.linalg.qr(rng.normal(size=(M, M)))
    spectrum = np.concatenate([[1 / kappa, 1.0], rng.uniform(1 / kappa, 1.0, M - 2)])
    S = {"H": basis * spectrum @ basis.T, "C": rng.normal(size=(N, M)), "b": rng.normal(size=M)}
    S["gamma"] = np.asarray(share / (1 + BEND))
    return jnp.asarray(rng.normal(size=N)), jax.tree.map(jnp.asarray, S)


def descent(M):
    """Gradient descent with the step size in S, so that one program serves all of them."""
    step = lambda w, lam, S, t: w - S["gamma"] * jax.grad(g)(w, lam, S)
    return bx.Dynamics(lambda lam, S: jnp.zeros(M), step)


BOUND = {K: bx.hypergradient(f, descent(4), bx.Reverse(K=K), T=20) for K in (None, 1, 3, 10)}
RATIO = {K: bx.hypergradient(f, descent(3), bx.Reverse(K=K), T=200) for K in (None, 1, 5)}


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10_000), share=st.floats(0.2, 1.0), kappa=st.floats(2.0, 50.0))
def test_bias_bound(seed, share, kappa):
    """Prop. 3.1, Eq. 10: |h_{T-K} - d f| <= (1 - gamma alpha)^K / (gamma alpha) |grad f| M_B."""
    lam, S = strongly_convex(seed, share, kappa=kappa)
    exact = BOUND[None](lam, S)
    slope = jnp.linalg.norm(jax.grad(f)(exact.w, lam, S))
    rate, M_B = float(S["gamma"]) / kappa, S["gamma"] * jnp.linalg.norm(S["C"], 2)
    for K in (1, 3, 10):
        bias = jnp.linalg.norm(BOUND[K](lam, S).h - exact.h)
        assert bias <= (1 - rate) ** K / rate * slope * M_B * (1 + 1e-9)


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10_000))
def test_sufficient_descent(seed):
    """Lemma 3.2, N >= M, T large, gamma small: h_{T-K}' d f >= c |grad_w f|^2 with c > 0."""
    lam, S = strongly_convex(seed, 0.3, M=3, N=5)
    exact = RATIO[None](lam, S).h
    assert all(RATIO[K](lam, S).h @ exact > 0 for K in (1, 5))


def descend(p, rule, steps, eta=0.05):
    """lam after so many steps of the size eta/sqrt(tau), and |dF| on the way there."""
    lams = []
    result = bx.minimize(
        p.f,
        p.xi,
        rule,
        p.lam,
        T=p.T,
        steps=steps,
        optimizer=optax.sgd(bx.decaying(eta)),
        S=p.S,
        evaluate=lambda lam: lams.append(lam) or 0.0,
        evaluate_every=max(steps // 50, 1),
    )
    return result, [float(jnp.linalg.norm(p.finite(lam, p.S))) for lam in lams]


@pytest.mark.parametrize("K", [1, 5])
def test_on_average_rate(K):
    """Theorem 3.3: the weighted mean of |dF|^2 falls as R grows, down to the bias."""
    p = problems.toy(pull=5.0)
    means = []
    for R in (50, 200, 800):
        _, slopes = descend(p, bx.Reverse(K=K), R)
        tau = np.arange(1, len(slopes) + 1)
        means.append(np.average(np.square(slopes), weights=1 / np.sqrt(tau)))
    _, slopes = descend(p, bx.Reverse(K=K), 800)
    bias = max(_bias(p, K, lam) for lam in (p.lam, jnp.array([1.0, 0.0]), jnp.zeros(2)))
    assert means[2] < means[1] < means[0]
    assert slopes[-1] < bias  # near a point that is stationary up to the bias


def _bias(p, K, lam):
    h = bx.hypergradient(p.f, p.xi, bx.Reverse(K=K), T=p.T)(lam, p.S).h
    return float(jnp.linalg.norm(h - p.finite(lam, p.S)))


def test_one_step_is_enough_on_the_toy_problem():
    """Theorem 3.4: with K = 1 the limit is a stationary point of f itself, |dF| -> 1e-8."""
    _, slopes = descend(problems.toy(), bx.Reverse(K=1), 100_000, eta=0.3)
    assert slopes[-1] < 1e-8


@pytest.mark.parametrize("K", [1, 3, 8])
def test_truncation_misses_the_counterexample(K):
    """Theorem 3.5: K-RMD converges to a point that is not stationary, full RMD to one that is."""
    p = problems.counterexample(T=40)
    truncated = bx.minimize(
        p.f, p.xi, bx.Reverse(K=K), p.lam, T=p.T, steps=2000, optimizer=optax.sgd(0.2)
    )
    full = bx.minimize(p.f, p.xi, bx.Reverse(), p.lam, T=p.T, steps=2000, optimizer=optax.sgd(0.2))
    assert truncated.history["h_norm"][-1] < 1e-12 and full.history["h_norm"][-1] < 1e-12
    assert abs(p.finite(full.lam, None)) < 1e-12
    c = 0.8**K  # h = (lam - 1) + (1 - c) w_T vanishes where lam = 1 - (1 - c) w_T
    assert abs(p.finite(truncated.lam, None)) > 0.4 * c


def test_taylor_identity():
    """Prop. 3.6: -g_{lam w} g_{ww}^{-1} = B sum_k A^k, at any minimiser, to 1e-10."""
    lam, S = strongly_convex(3, 1.0)
    w, gamma = jnp.zeros(4), S["gamma"]
    for _ in range(50):  # Newton
        w = w - jnp.linalg.solve(jax.hessian(g)(w, lam, S), jax.grad(g)(w, lam, S))
    H = jax.hessian(g)(w, lam, S)
    mixed = jax.jacobian(jax.grad(g), 1)(w, lam, S).T  # N x M
    A, B = jnp.eye(4) - gamma * H, -gamma * mixed
    total, term = jnp.zeros_like(B), B
    for _ in range(2000):
        total, term = total + term, term @ A
    np.testing.assert_allclose(total, -mixed @ jnp.linalg.inv(H), atol=1e-10)


def test_conjugate_gradients_and_truncation_rates():
    """Behind Prop. 3.6: CG errs by O((1 - 1/sqrt(kappa))^K), the series by O((1 - 1/kappa)^K)."""
    M, kappa = 60, 100.0
    spectrum = jnp.linspace(1 / kappa, 1.0, M)
    g = lambda w, lam, S: jnp.sum(spectrum * w**2) / 2 - lam @ w
    b = jax.random.normal(jax.random.key(0), (M,))
    f = lambda w, lam, S: b @ w
    xi = bx.Descent(g, lambda lam, S: lam / spectrum, optax.sgd(1.0))  # begins at the optimum
    lam = jnp.ones(M)
    exact = b / spectrum
    wrong = lambda rule: float(
        jnp.linalg.norm(bx.hypergradient(f, xi, rule, T=80)(lam).h - exact) / jnp.linalg.norm(exact)
    )
    K = np.array([10, 20, 40])
    cg = [wrong(bx.Implicit(lx.CG(rtol=0.0, atol=0.0, max_steps=int(k)))) for k in K]
    series = [wrong(bx.Neumann(int(k))) for k in K]
    truncated = [wrong(bx.Reverse(K=int(k))) for k in K]
    np.testing.assert_allclose(truncated, series, rtol=1e-8)
    rate = lambda errors: -np.polyfit(K, np.log(errors), 1)[0]
    assert rate(cg) > -np.log(1 - 1 / np.sqrt(kappa))
    assert rate(series) < 2.5 / kappa * 2  # a slow mode of rate 1/kappa rules
    assert np.all(np.array(series) <= (1 - 1 / kappa) ** K * (1 + 1e-9))
    assert cg[-1] < 0.2 * series[-1]
