"""The memory laws of Table 1, in bytes of the compiled program."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import bilevax as bx

M = 20_000  # large against everything that is not a state
STATE = 4 * M


@functools.cache
def temporary(rule, T, opt=None):
    """Bytes that XLA allocates beside inputs and outputs."""
    g = lambda w, lam, S: jnp.sum((w - jnp.tanh(lam["c"] * S)) ** 2 * jnp.cosh(0.1 * w))
    f = lambda w, lam, S: jnp.sum(jnp.sin(w))
    w_0 = jnp.zeros(M, jnp.float32)
    xi = bx.Descent(g, bx.constant(w_0), opt or optax.sgd(0.1))
    lam = {"c": jnp.asarray(0.5, jnp.float32)}
    hg = bx.hypergradient(f, xi, rule, T=T)
    S = jnp.ones(M, jnp.float32)
    program = jax.jit(hg).lower(lam, S).compile()
    return program.memory_analysis().temp_size_in_bytes


def slope(xs, ys):
    return np.polyfit(xs, ys, 1)[0]


def test_truncation_is_flat_in_T():
    bytes_ = [temporary(bx.Reverse(K=5), T) for T in (10, 1000)]
    assert max(bytes_) == min(bytes_)


def test_truncation_is_linear_in_K_with_one_state_a_step():
    Ks = [5, 20, 40]
    bytes_ = [temporary(bx.Reverse(K=K), 1000) for K in Ks]
    assert slope(Ks, bytes_) == pytest.approx(STATE, rel=0.05)


def test_full_reverse_is_linear_in_T_with_the_same_slope():
    Ts = [10, 40, 100]
    bytes_ = [temporary(bx.Reverse(), T) for T in Ts]
    assert slope(Ts, bytes_) == pytest.approx(STATE, rel=0.05)


@pytest.mark.parametrize(
    "opt, states", [(optax.sgd(0.1, momentum=0.9), 1), (optax.adam(0.1, eps_root=1e-8), 3)]
)
def test_a_state_includes_the_optimizer(opt, states):
    """Adam's two moments are kept beside w. A step is linear in its momentum, so no
    derivative needs its value, and XLA does not keep it."""
    Ks = [5, 40]
    bytes_ = [temporary(bx.Reverse(K=K), 50, opt) for K in Ks]
    assert slope(Ks, bytes_) == pytest.approx(states * STATE, rel=0.05)


def test_segments_of_sqrt_T_give_sqrt_T():
    """T/c + c states, whatever the step's own workspace is."""
    Ts = [16, 256, 1024]
    bytes_ = [temporary(bx.Reverse(segment=int(T**0.5)), T) for T in Ts]
    roots = [2 * T**0.5 for T in Ts]
    assert slope(roots, bytes_) == pytest.approx(STATE, rel=0.05)
    assert bytes_[-1] < temporary(bx.Reverse(), 1024) / 10


def test_segments_of_segments_give_the_cube_root():
    """T/c^2 + c + c states, up to T = 10^5; compiled, not run."""
    cs = [10, 27, 46]
    bytes_ = [temporary(bx.Reverse(segment=(c * c, c)), c**3) for c in cs]
    assert slope([3 * c for c in cs], bytes_) == pytest.approx(STATE, rel=0.05)
    three = temporary(bx.Reverse(segment=(5832, 324, 18)), 104_976)  # 18^4
    assert three - bytes_[0] == pytest.approx((4 * 18 - 30) * STATE, rel=0.2)


def test_truncation_and_segments_combine():
    """K/c + c states, flat in T."""
    Ks = [16, 256]
    bytes_ = [temporary(bx.Reverse(K=K, segment=int(K**0.5)), 300) for K in Ks]
    assert slope([2 * K**0.5 for K in Ks], bytes_) == pytest.approx(STATE, rel=0.05)
    assert temporary(bx.Reverse(K=256, segment=16), 1000) == bytes_[-1]


def test_a_policy_keeps_more_than_the_iterates():
    Ts, every = [10, 100], jax.checkpoint_policies.everything_saveable
    bytes_ = [temporary(bx.Reverse(policy=every), T) for T in Ts]
    assert slope(Ts, bytes_) > 1.9 * STATE
    assert temporary(bx.Reverse(K=5, policy=every), 10) == temporary(
        bx.Reverse(K=5, policy=every), 1000
    )


def test_a_policy_saves_what_it_keeps_from_being_computed_again():
    """Products with the data: to and fro in a step, and in its derivative; one more if the first
    has to be made again.
    """
    g = lambda w, lam, S: jnp.sum(jnp.exp(lam) * jnp.cosh(S @ w))
    f = lambda w, lam, S: jnp.sum(w**2)
    xi = bx.Descent(g, bx.constant(jnp.ones((30, 5))), optax.sgd(0.1))

    def products(rule):
        hg = jax.jit(bx.hypergradient(f, xi, rule, T=9))
        text = hg.lower(jnp.zeros((50, 1)), jnp.ones((50, 30))).compile().as_text()
        return text.count(" dot(")

    keep = jax.checkpoint_policies.dots_saveable
    assert products(bx.Reverse()) == 5
    assert products(bx.Reverse(policy=keep)) == 4


@pytest.mark.parametrize("rule", [bx.Forward(), bx.Implicit(), bx.Neumann(K=7)], ids=repr)
def test_the_others_are_flat_in_T(rule):
    bytes_ = [temporary(rule, T) for T in (10, 1000)]
    assert max(bytes_) == min(bytes_)


def test_forward_chunks_hold_chunk_tangents():
    """N = 64 directions at once, or four at a time: 60 states less."""

    def bytes_of(chunk):
        f = lambda w, lam, S: jnp.sum(jnp.sin(w))
        g = lambda w, lam, S: jnp.sum((w - jnp.repeat(lam, M // 64)) ** 2 * jnp.cosh(w))
        w_0 = jnp.zeros(M // 64 * 64, jnp.float32)
        xi = bx.Descent(g, bx.constant(w_0), optax.sgd(0.1))
        hg = bx.hypergradient(f, xi, bx.Forward(chunk=chunk), T=10)
        program = jax.jit(hg).lower(jnp.ones(64, jnp.float32)).compile()
        return program.memory_analysis().temp_size_in_bytes

    assert bytes_of(None) - bytes_of(4) >= 60 * STATE * 0.95


def test_krylov_is_flat_in_T():
    bytes_ = [temporary(bx.Krylov(2, 4, K=2, head=2), T) for T in (100, 2000)]
    assert max(bytes_) == min(bytes_)


def test_krylov_holds_pieces_plus_rank_states():
    """And one for each exact step."""
    pieces, ranks = [2, 20], [4, 20]
    exact = [temporary(bx.Krylov(2, 4, K=K, head=K), 100) for K in pieces]
    assert slope(pieces, exact) == pytest.approx(2 * STATE, rel=0.05)
    by_piece = [temporary(bx.Krylov(p, 4), 100) for p in pieces]
    by_rank = [temporary(bx.Krylov(2, r), 100) for r in ranks]
    assert slope(pieces, by_piece) == pytest.approx(STATE, rel=0.05)
    assert slope(ranks, by_rank) == pytest.approx(STATE, rel=0.05)


def test_adaptive_rules_hold_what_they_say():
    Ks = [10, 40]
    bytes_ = [temporary(bx.AdaptiveReverse(0.1, K), 100) for K in Ks]
    assert slope(Ks, bytes_) == pytest.approx(STATE, rel=0.05)
    few, many = (temporary(bx.AdaptiveKrylov(0.1), T) for T in (100, 1000))
    assert many - few < 1000 * 16 * 4 * 40  # coefficients of the powers, no states
    assert many - few < 40 * STATE


def test_forward_chunks_build_no_identity():
    """N = 3000 hyperparameters: the N x N identity alone would be 36 MB."""
    N = 3000
    f = lambda w, lam, S: jnp.sum(jnp.sin(w))
    g = lambda w, lam, S: jnp.sum((w - jnp.mean(lam * S)) ** 2)
    xi = bx.Descent(g, bx.constant(jnp.zeros(3, jnp.float32)), optax.sgd(0.1))
    hg = bx.hypergradient(f, xi, bx.Forward(chunk=16), T=10)
    args = jnp.ones(N, jnp.float32), jnp.ones(N, jnp.float32)
    program = jax.jit(hg).lower(*args).compile()
    assert program.memory_analysis().temp_size_in_bytes < 4 * N * N / 20
