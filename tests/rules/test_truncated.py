"""K-RMD is exactly h_{T-K}, with or without segments, for every K."""

import jax
import jax.numpy as jnp
import optax
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracle import assert_close, exact, in_turn, partial_sums

import bilevax as bx
from bilevax import problems

T = 4

INNER = {
    "sgd": optax.sgd(0.2),
    "momentum": optax.sgd(0.1, momentum=0.8),
    "adam": optax.adam(0.1, eps_root=1e-8),
}


@pytest.mark.parametrize("opt", INNER)
@pytest.mark.parametrize(
    "sample", [pytest.param(lambda S, t: S, marks=pytest.mark.slow), in_turn(8)]
)
def test_every_K_is_the_textbook_recursion(opt, sample):
    p = problems.hyper_representation(n=10, D=3, T=T).with_inner(INNER[opt], sample)
    sums = partial_sums(p)
    rules = [bx.Reverse(K=K, segment=c) for K in range(1, T + 1) for c in (None, 2)]
    hgs = [bx.hypergradient(p.f, p.xi, rule, T=T) for rule in rules]
    outs = jax.jit(lambda lam, S: [hg(lam, S).h for hg in hgs])(p.lam, p.S)
    for rule, h in zip(rules, outs, strict=True):
        assert_close(h, sums[rule.K])
    assert_close(sums[T + 1], exact(p))  # the oracle checks itself


def test_depth_T_leaves_out_only_B_0():
    p = problems.hyper_representation(T=T)
    most = bx.hypergradient(p.f, p.xi, bx.Reverse(K=T), T=T)(p.lam, p.S).h
    full = bx.hypergradient(p.f, p.xi, bx.Reverse(), T=T)(p.lam, p.S).h
    assert_close(most["layer"], full["layer"])
    assert float(jnp.max(jnp.abs(most["start"] - full["start"]))) > 1e-4


@settings(max_examples=12, deadline=None)
@given(data=st.data(), T=st.integers(1, 9), M=st.integers(1, 4))
def test_any_horizon_depth_and_segment(data, T, M):
    """h_{T-K} of the quadratic: the sum of the last K powers, in closed form."""
    K = data.draw(st.integers(1, T))
    lengths = st.sets(st.integers(1, 12), min_size=1, max_size=3)
    nested = lengths.map(lambda c: tuple(sorted(c, reverse=True)))
    segment = data.draw(st.one_of(st.none(), st.integers(1, 12), nested))
    p = problems.quadratic(M=M, T=T, gamma=0.4)
    out = bx.hypergradient(p.f, p.xi, bx.Reverse(K=K, segment=segment), T=T)(p.lam, p.S)
    A = jnp.eye(M) - 0.4 * p.S["G"]
    h = out.w - p.S["b"] - jnp.linalg.matrix_power(A, K) @ (out.w - p.S["b"])
    assert_close(out.h, h)  # gamma G (I + A + ... + A^{K-1}) = I - A^K
    if K == T:
        rules = bx.Reverse(), bx.Reverse(segment=segment)
        one, other = (bx.hypergradient(p.f, p.xi, rule, T=T)(p.lam, p.S).h for rule in rules)
        assert_close(one, other)


@pytest.mark.parametrize("opt", INNER)
def test_at_the_optimum_truncation_is_the_neumann_series(opt):
    """Prop. 3.6: where A_t and B_t have settled, Reverse(K) and Neumann(K) agree."""
    settling = optax.adam(0.05, b2=0.9, eps_root=0.01)  # at the optimum a step of size 0.5
    inner = settling if opt == "adam" else INNER[opt]
    p = problems.ridge().with_inner(inner, T=6000)
    for K in (1, 10):
        rules = bx.Reverse(K=K), bx.Neumann(K=K)
        a, b = (bx.hypergradient(p.f, p.xi, r, T=p.T)(p.lam, p.S).h for r in rules)
        assert_close(a, b)
