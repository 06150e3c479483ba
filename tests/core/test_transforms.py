"""jit, vmap, grad and second derivatives compose; nothing is traced or drawn anew."""

import re

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from oracle import assert_close

import bilevax as bx
from bilevax import problems
from bilevax.testing import unrolled

RULES = [bx.Reverse(), bx.Reverse(K=4, segment=2), bx.Forward(), bx.Implicit(), bx.Neumann(K=3)]
VARIANTS = [bx.Reverse(K=3), bx.Forward(chunk=2)]
each_rule = pytest.mark.parametrize(
    "rule", [*RULES, *(pytest.param(r, marks=pytest.mark.slow) for r in VARIANTS)], ids=repr
)


@pytest.mark.eager
@each_rule
def test_vmap_over_contexts(rule):
    """A batch of tasks: the same as one after another."""
    tasks = [problems.logistic(n=10, T=5, seed=seed) for seed in range(3)]
    S = jax.tree.map(lambda *leaves: jnp.stack(leaves), *[p.S for p in tasks])
    hg = bx.hypergradient(tasks[0].f, tasks[0].xi, rule, T=5)
    batch = jax.vmap(hg, (None, 0))(tasks[0].lam, S)
    for i, p in enumerate(tasks):
        one = hg(p.lam, p.S)
        assert_close(batch.h[i], one.h, 1e-6 if rule == bx.Implicit() else 1e-10)
        assert_close(batch.value[i], one.value)


@pytest.mark.eager
@each_rule
def test_grad_of_solve_is_the_hypergradient(rule):
    p = problems.hyper_representation(n=10, D=3, T=5)
    outer = lambda lam: p.f(bx.solve(p.xi, lam, p.S, T=5, rule=rule), lam, p.S)
    value, h = jax.value_and_grad(outer)(p.lam)
    out = bx.hypergradient(p.f, p.xi, rule, T=5)(p.lam, p.S)
    assert_close(h, out.h)
    assert_close(value, out.value)


def test_two_inner_problems_in_one_loss():
    p = problems.logistic(n=10, T=4)
    inner = lambda lam, k: bx.solve(p.xi, lam * k, p.S, T=4)["slope"]
    loss = lambda lam: jnp.sum(inner(lam, 1.0) * inner(lam, 0.5))
    plain = lambda lam: jnp.sum(_plain(p, lam)["slope"] * _plain(p, lam * 0.5)["slope"])
    assert_close(jax.grad(loss)(p.lam), jax.jit(jax.grad(plain))(p.lam))


def _plain(p, lam):
    s = p.xi.start(lam, p.S)
    for t in range(p.T):
        s = p.xi.advance(s, lam, p.S, t)
    return p.xi.read(s)


CURVED = problems.logistic(n=10, D=3, T=3)


@pytest.fixture(scope="module")
def hessian():
    return jax.jit(jax.hessian(unrolled(CURVED)))(CURVED.lam)


@pytest.mark.parametrize("rule", [bx.Reverse(), bx.Reverse(segment=2), bx.Forward()], ids=repr)
def test_second_derivatives(rule, hessian):
    p = CURVED
    outer = lambda lam: p.f(bx.solve(p.xi, lam, p.S, T=p.T, rule=rule), lam, p.S)
    hg = bx.hypergradient(p.f, p.xi, rule, T=p.T)
    assert_close(jax.jit(jax.hessian(outer))(p.lam), hessian)
    assert_close(jax.jit(jax.jacrev(jax.grad(outer)))(p.lam), hessian)
    assert_close(jax.jacfwd(lambda lam: hg(lam, p.S).h)(p.lam), hessian)


@pytest.mark.parametrize("rule", [bx.AdaptiveReverse(1e-9, 4), bx.AdaptiveKrylov(1e-9)], ids=repr)
def test_a_loop_without_a_fixed_length_has_derivatives_by_forward_mode(rule):
    """And says so; the value, which needs none of it, has both."""
    p = problems.logistic(n=10, D=3, T=4)
    hg = bx.hypergradient(p.f, p.xi, rule, T=4)
    h = lambda lam: hg(lam, p.S).h
    assert np.isfinite(jax.jacfwd(h)(p.lam)).all()
    with pytest.raises(RuntimeError, match=re.escape(repr(rule)) + ".*: use jax.jvp or"):
        jax.jacrev(h)(p.lam)
    value = lambda lam: hg(lam, p.S).value
    exact = bx.hypergradient(p.f, p.xi, bx.Reverse(), T=4)
    assert_close(jax.grad(value)(p.lam), exact(p.lam, p.S).h)


def test_new_arrays_never_retrace():
    """Neither new hyperparameters, nor new data, nor a new start."""
    counts = {"f": 0, "g": 0}

    def g(w, lam, S):
        counts["g"] += 1
        return jnp.sum((w - lam * S) ** 2)

    def f(w, lam, S):
        counts["f"] += 1
        return jnp.sum(w**2)

    opt, seen = optax.sgd(0.1), []
    for i in range(5):
        xi = bx.Descent(g, bx.constant(jnp.full(3, float(i))), opt)
        hg = bx.hypergradient(f, xi, bx.Reverse(K=2), T=10)
        hg(jnp.full(3, 1.0 + i), jnp.full(3, 2.0 + i))
        seen.append(dict(counts))
    assert seen[0] == seen[-1]


@each_rule
def test_objectives_are_traced_a_small_fixed_number_of_times(rule):
    counts = {}
    for T in (10, 200):
        calls = {"f": 0, "g": 0}

        def g(w, lam, S, calls=calls):
            calls["g"] += 1
            return jnp.sum((w - lam) ** 2)

        def f(w, lam, S, calls=calls):
            calls["f"] += 1
            return jnp.sum(w**2)

        xi = bx.Descent(g, bx.constant(jnp.zeros(3)), optax.sgd(0.1))
        jax.eval_shape(bx.hypergradient(f, xi, rule, T=T), jnp.ones(3))
        counts[T] = calls
    assert counts[10] == counts[200]
    assert counts[10]["f"] <= 2
    assert counts[10]["g"] <= 9


@each_rule
def test_the_same_key_gives_the_same_gradient(rule):
    """Minibatches and noise are drawn again on recomputation, to the last bit."""
    p = problems.reweighting(n=12, T=6).with_inner(optax.sgd(0.2), problems.minibatch(4))
    hg = bx.hypergradient(p.f, p.xi, rule, T=6)
    once, again = hg(p.lam, p.S).h, hg(p.lam, p.S).h
    assert np.array_equal(once, again)
    other = hg(p.lam, p.S | {"key": jax.random.key(7)}).h
    assert not np.allclose(once, other)


def test_batches_by_step_number():
    """t counts from 0 to T-1, so that stacked batches are S[t]."""
    S = jnp.asarray([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
    g = lambda w, lam, S: jnp.sum(lam * S * w)
    sample = lambda S, t: S[t]
    xi = bx.Descent(g, bx.constant(jnp.zeros(2)), optax.sgd(1.0), sample)
    w = bx.solve(xi, jnp.ones(2), S, T=3)
    assert_close(w, -jnp.sum(S, axis=0))


class Net(eqx.Module):
    weight: jax.Array
    bias: jax.Array


@each_rule
def test_any_pytree_of_any_shapes(rule):
    """A module, a tuple, a dict, scalars, an empty array and two dtypes."""
    lam = (
        {"rate": jnp.asarray(0.3), "none": None},
        Net(jnp.ones((2, 3)), jnp.ones((), jnp.float32)),
        jnp.zeros((0, 2)),
    )

    def g(w, lam, S):
        pull = jnp.sum((w.weight - lam[1].weight * lam[0]["rate"]) ** 2)
        rest = jnp.sum((w.bias - lam[1].bias) ** 2)
        return pull + rest.astype(jnp.float64) + jnp.sum(lam[2] ** 2)

    def f(w, lam, S):
        return jnp.sum(w.weight**2) + (w.bias**2).astype(jnp.float64) + jnp.sum(lam[2])

    start = Net(jnp.zeros((2, 3)), jnp.zeros((), jnp.float32))
    xi = bx.Descent(g, bx.constant(start), optax.sgd(0.2, momentum=0.1))
    out = bx.hypergradient(f, xi, rule, T=5)(lam)
    assert jax.tree.structure(out.h) == jax.tree.structure(lam)
    for a, b in zip(jax.tree.leaves(out.h), jax.tree.leaves(lam), strict=True):
        assert (a.shape, a.dtype) == (b.shape, b.dtype)
    if rule in (bx.Reverse(), bx.Forward(), bx.Forward(chunk=2)):
        p = problems.Problem("net", f, xi, lam, None, 5)
        want = jax.jit(jax.grad(unrolled(p)))(lam)
        assert_close(out.h, want, 1e-6)  # one leaf is float32


@each_rule
def test_an_empty_lam_has_an_empty_gradient(rule):
    p = problems.quadratic(T=5)
    g = lambda w, lam, S: p.xi.g(w, p.lam, S)
    xi = bx.Descent(g, p.xi.init, optax.sgd(0.1))
    assert bx.hypergradient(p.f, xi, rule, T=5)({}, p.S).h == {}


def test_numpy_arrays_are_arrays():
    p = problems.quadratic(T=5)
    hg = bx.hypergradient(p.f, p.xi, bx.Reverse(), T=5)
    assert_close(hg(np.asarray(p.lam), p.S).h, hg(p.lam, p.S).h)


def test_float32_stays_float32():
    single = lambda x: jax.tree.map(lambda a: a.astype(jnp.float32), x)
    p = problems.quadratic(T=5)
    xi = bx.Descent(p.xi.g, bx.constant(single(p.xi.init.w)), optax.adam(0.1))
    for rule in RULES + VARIANTS:
        out = bx.hypergradient(p.f, xi, rule, T=5)(single(p.lam), single(p.S))
        assert out.h.dtype == out.w.dtype == jnp.float32
