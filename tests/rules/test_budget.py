"""Reverse(memory=...): exact, and what it keeps fits."""

import itertools

import jax
import jax.numpy as jnp
import optax
import pytest
from oracle import assert_close

import bilevax as bx
from bilevax import problems
from bilevax._rules.budget import WORTH, least, long_products, plan, states

ROWS, M = 500, WORTH  # a product that is worth keeping: ROWS sums of M terms
T = 60
STATE, PRODUCT = 8 * M, 8 * ROWS


def regression():
    g = lambda w, lam, S: jnp.mean(jax.nn.sigmoid(lam) * jnp.log(jnp.cosh(S @ w - 1)))
    f = lambda w, lam, S: jnp.sum(jnp.sin(w))
    xi = bx.Descent(g, bx.constant(jnp.zeros(M)), optax.sgd(0.1))
    return f, xi, jnp.linspace(-1, 1, ROWS), jax.random.normal(jax.random.key(0), (ROWS, M))


def way(memory, n=T):
    _, xi, lam, S = regression()
    return plan(memory, xi, lam, S, xi.start(lam, S), n)


def test_what_is_fastest_and_fits():
    """Of the two products of a step the pullback needs S w alone."""
    everything = T * (STATE + PRODUCT)
    assert way(everything) == ((), long_products)
    assert way(everything - 1) == way(T * STATE) == ((), None)
    assert way(T * STATE - 1) == way(16 * STATE) == ((8,), None)  # 60/8 + 8 of them
    assert way(16 * STATE - 1) == ((16, 4), None)
    assert states(T, (16, 4)) == 12


def temporary(rule):
    """Bytes of the program, and what it gives."""
    f, xi, lam, S = regression()
    program = jax.jit(bx.hypergradient(f, xi, rule, T=T)).lower(lam, S).compile()
    return program.memory_analysis().temp_size_in_bytes, program(lam, S).h


def test_bytes_of_the_program():
    """Beyond the budget there is what any rule takes, one step's own."""
    taken, want = temporary(bx.Reverse())
    own = taken - T * STATE
    carried = 6 * STATE  # by the loops over segments, at the most
    for memory in (10**9, T * (STATE + PRODUCT), T * STATE, 16 * STATE, 12 * STATE):
        taken, h = temporary(bx.Reverse(memory=memory))
        assert taken <= memory + own + carried
        assert_close(h, want)


def test_truncated_and_stateful():
    p = problems.logistic(n=10, D=3, T=9).with_inner(optax.adam(0.1, eps_root=1e-8))
    h = lambda rule: bx.hypergradient(p.f, p.xi, rule, T=9)(p.lam, p.S).h
    for K, memory in itertools.product((4, None), (1e9, 600)):
        assert_close(h(bx.Reverse(K=K, memory=memory)), h(bx.Reverse(K=K)))


@pytest.mark.parametrize("n", [1, 2, 100, 12_345])
def test_deeper_segments_keep_fewer(n):
    kept = [states(n, lengths) for lengths in ((), *least(n))]
    assert kept == sorted(kept, reverse=True)
    assert bx.extend.parse_rule("Reverse(memory=8e9)") == bx.Reverse(memory=8e9)


def test_messages():
    with pytest.raises(ValueError, match=r"memory must be positive, got 0: give the number of byt"):
        bx.Reverse(memory=0)
    with pytest.raises(ValueError, match="memory chooses segment itself, but segment=5 is given"):
        bx.Reverse(memory=1e9, segment=5)
    f, xi, lam, S = regression()
    small = r"memory=100 bytes cannot hold the way back over 60 steps: a state takes 2048, and"
    with pytest.raises(ValueError, match=small):
        bx.hypergradient(f, xi, bx.Reverse(memory=100), T=T)(lam, S)
