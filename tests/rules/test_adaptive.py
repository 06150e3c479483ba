"""Reverse mode that stops by itself: how far, how well, and when it says no."""

import functools
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from oracle import assert_close

import bilevax as bx
from bilevax import problems
from bilevax.testing import check_rule

CASES = {
    "reweighting": problems.reweighting(n=40, T=200),
    "quadratic": problems.quadratic(T=200),
    "ridge": problems.ridge(T=300),
    "logistic": problems.logistic(T=300),
    "hyper_representation": problems.hyper_representation(T=100),
}


def run(p, rule):
    return bx.hypergradient(p.f, p.xi, rule, T=p.T)(p.lam, p.S)


@pytest.mark.slow
def test_passes_the_battery():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", bx.ToleranceWarning)
        check_rule(bx.AdaptiveReverse(rtol=1e-12, max_K=6))


@functools.cache
def truncations(name):
    """(grad_lam f, h_{T-K} - grad_lam f for K = 1, ..., T), by Eq. 8 in one program."""
    p = CASES[name]
    advance = lambda s, lam, t: p.xi.advance(s, lam, p.S, t)

    def back(carry, at):
        alpha, h = carry
        s, t = at
        alpha, b = jax.vjp(lambda s, lam: advance(s, lam, t), s, p.lam)[1](alpha)  # no integers
        h = jax.tree.map(jnp.add, h, b)
        return (alpha, h), h

    @jax.jit
    def sums():
        t = jnp.arange(p.T)
        forth = lambda s, t: (advance(s, p.lam, t), s)
        s, states = jax.lax.scan(forth, p.xi.start(p.lam, p.S), t)
        w, read = jax.vjp(p.xi.read, s)
        alpha, direct = jax.grad(p.f, (0, 1))(w, p.lam, p.S)
        begin = read(alpha)[0], jax.tree.map(jnp.zeros_like, p.lam)
        _, h = jax.lax.scan(back, begin, (states, t), reverse=True)
        return direct, jax.tree.map(lambda a: a[::-1], h)

    return sums()


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("rtol", [0.1, pytest.param(0.01, marks=pytest.mark.slow), 1e-3])
def test_the_tolerance_is_met(name, rtol):
    """Against h_0, which is every step without B_0; and it equals truncation at its depth."""
    p = CASES[name]
    out = run(p, bx.AdaptiveReverse(rtol, max_K=p.T))
    depth, tail = int(out.report["depth"]), float(out.report["tail"])
    direct, sums = truncations(name)
    found = jax.tree.map(lambda a, b: a - b, out.h, direct)
    every, as_deep = (jax.tree.map(lambda a, K=K: a[K - 1], sums) for K in (p.T, depth))
    gap = jax.tree.map(lambda a, b: a - b, found, every)
    assert bool(out.report["converged"])
    assert float(optax.tree.norm(gap) / optax.tree.norm(every)) <= rtol
    assert tail <= rtol
    assert_close(found, as_deep, 1e-9)


def test_less_depth_for_less_accuracy():
    p = CASES["reweighting"]
    depths = [int(run(p, bx.AdaptiveReverse(r, 200)).report["depth"]) for r in (0.3, 0.03, 0.003)]
    assert depths[0] < depths[1] < depths[2] < 200


def test_a_tolerance_that_is_not_met_is_said():
    p = CASES["reweighting"]
    with pytest.warns(bx.ToleranceWarning, match=r"max_K=20\) did not reach its tolerance.*Raise"):
        out = run(p, bx.AdaptiveReverse(1e-3, max_K=20))
        jax.effects_barrier()
    assert not bool(out.report["converged"])
    assert int(out.report["depth"]) == 20
    assert_close(out.h, run(p, bx.Reverse(K=20)).h)


def test_a_loop_that_does_not_contract_is_followed_to_its_start():
    """A = I: every term counts, and all are taken."""
    xi = bx.Dynamics(lambda lam, S: jnp.zeros(2), lambda s, lam, S, t: s + lam)
    out = bx.hypergradient(lambda w, lam, S: jnp.sum(w), xi, bx.AdaptiveReverse(0.1, 50), T=50)(
        jnp.ones(2)
    )
    assert int(out.report["depth"]) > 40
    assert_close(out.h, float(out.report["depth"]) * jnp.ones(2))


def test_vmap_stops_each_at_its_own_depth():
    p = CASES["reweighting"]
    hg = bx.hypergradient(p.f, p.xi, bx.AdaptiveReverse(0.03, p.T), T=p.T)
    lams = jnp.stack([p.lam, p.lam - 3.0])
    batch = jax.vmap(hg, (0, None))(lams, p.S)
    singles = [hg(lam, p.S) for lam in lams]
    assert [int(d) for d in batch.report["depth"]] == [int(s.report["depth"]) for s in singles]
    assert len({int(s.report["depth"]) for s in singles}) == 2
    assert_close(batch.h, jnp.stack([s.h for s in singles]))


def test_work_follows_the_depth_not_the_limit():
    """The loop that runs is a while loop over stored iterates: max_K costs memory only."""
    p = CASES["ridge"]
    shallow, deep = (run(p, bx.AdaptiveReverse(0.01, K)).report for K in (50, 300))
    assert int(shallow["depth"]) == int(deep["depth"]) < 50


@pytest.mark.parametrize(
    "make, text",
    [
        (lambda: bx.AdaptiveReverse(0.0, 5), "rtol must be positive, got 0.0"),
        (lambda: bx.AdaptiveReverse(-1.0, 5), "rtol must be positive"),
        (lambda: bx.AdaptiveReverse(0.1, 0), "max_K must be at least 1"),
        (lambda: bx.Krylov(pieces=0), "pieces must be at least 1"),
        (lambda: bx.Krylov(rank=0), "rank must be at least 1"),
        (lambda: bx.Krylov(K=-1), "K must be at least 0, got -1"),
        (lambda: bx.Krylov(head=-1), "head must be at least 0"),
        (lambda: bx.AdaptiveKrylov(rtol=0), "rtol must be positive"),
        (lambda: bx.AdaptiveKrylov(max_pieces=0), "max_pieces must be at least 1"),
        (lambda: bx.AdaptiveKrylov(max_pieces=5), "must be a power of two, got 5: give 4 or 8"),
        (lambda: bx.AdaptiveKrylov(max_rank=0), "max_rank must be at least 1"),
    ],
)
def test_bad_settings(make, text):
    with pytest.raises(ValueError, match=text):
        make()


def test_bad_kinds():
    with pytest.raises(TypeError, match="rtol must be a Python float, got '0.1'"):
        bx.AdaptiveReverse("0.1", 5)
    p = CASES["quadratic"]
    with pytest.raises(ValueError, match=r"takes K \+ head = 7 steps exactly, but the inner"):
        bx.hypergradient(p.f, p.xi, bx.Krylov(K=4, head=3), T=6)(p.lam, p.S)


def test_reports_are_arrays_of_one_number():
    p = CASES["quadratic"]
    for rule in (bx.AdaptiveReverse(0.1, 200), bx.Krylov(), bx.AdaptiveKrylov(0.1)):
        assert all(np.shape(v) == () for v in run(p, rule).report.values())
