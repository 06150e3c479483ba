"""Krylov back-propagation: exact where it must be, close where it should be, and honest."""

import functools
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracle import assert_close, exact

import bilevax as bx
from bilevax import problems
from bilevax._rules.krylov import path as _krylov_path
from bilevax._rules.krylov import rule as _krylov
from bilevax._rules.krylov.arnoldi import Swing, begin, grow, powers
from bilevax.testing import check_rule


def run(p, rule):
    return bx.hypergradient(p.f, p.xi, rule, T=p.T)(p.lam, p.S)


def error(p, rule, full):
    flat = lambda x: np.concatenate([np.ravel(a) for a in jax.tree.leaves(x)])
    a, b = flat(run(p, rule).h), flat(full)
    return np.linalg.norm(a - b) / np.linalg.norm(b)


@pytest.mark.slow
@pytest.mark.parametrize("rule", [bx.Krylov(1, 6), bx.Krylov(2, 2, K=1, head=1)], ids=repr)
def test_fixed_form_passes_the_battery(rule):
    check_rule(rule, linear=False)


INNER = {"sgd": optax.sgd(0.4), "momentum": optax.sgd(0.3, momentum=0.8)}


@functools.cache
def quadratic(opt):
    """The problem and its hypergradient."""
    p = problems.quadratic(T=25).with_inner(INNER[opt])
    return p, exact(p)


@pytest.mark.parametrize("opt", INNER)
@pytest.mark.parametrize(
    "rule",
    [bx.Krylov(1, 12), bx.Krylov(3, 30), bx.Krylov(2, 12, K=3, head=2), bx.AdaptiveKrylov(1e-6)],
    ids=repr,
)
def test_exact_on_quadratics_with_enough_rank(rule, opt):
    p, want = quadratic(opt)
    assert_close(run(p, rule).h, want)


@functools.cache
def with_adam():
    """A problem and its hypergradient."""
    p = problems.hyper_representation(n=10, D=3, T=7)
    p = p.with_inner(optax.adam(0.1, eps_root=1e-8))
    return p, exact(p)


@pytest.mark.parametrize(
    "rule",
    [bx.Krylov(7, 1), bx.Krylov(50, 4), bx.Krylov(1, 1, K=7), bx.Krylov(1, 1, K=3, head=4)],
    ids=repr,
)
def test_pieces_of_one_step_and_exact_steps_are_full_reverse(rule):
    """R = 1, and no piece at all: nothing is frozen, B_0 included."""
    p, want = with_adam()
    assert_close(run(p, rule).h, want)


@settings(max_examples=8, deadline=None)
@given(T=st.integers(1, 12), pieces=st.integers(1, 5), rank=st.integers(1, 14), data=st.data())
def test_any_shape_is_exact_on_quadratics_of_that_rank(T, pieces, rank, data):
    """R <= rank, or dimension <= rank: the polynomial is reproduced, whatever the cuts."""
    K = data.draw(st.integers(0, T))
    head = data.draw(st.integers(0, T - K))
    p = problems.quadratic(M=3, T=T)
    rule = bx.Krylov(pieces, max(rank, 3), K=K, head=head)
    assert_close(run(p, rule).h, p.finite(p.lam, p.S))


@pytest.mark.parametrize("rule", [bx.Krylov(), bx.AdaptiveKrylov(0.1), bx.AdaptiveReverse(0.1, 5)])
def test_no_cotangent_gives_zero_and_no_nan(rule):
    p = problems.reweighting(n=12, T=20)
    f = lambda w, lam, S: jnp.sum(lam**2) + 0.0 * jnp.sum(w)
    out = bx.hypergradient(f, p.xi, rule, T=20)(p.lam + 1.0, p.S)
    assert_close(out.h, 2 * (p.lam + 1.0))
    assert all(np.all(np.isfinite(x)) for x in out.report.values())


def test_breakdown_in_an_invariant_subspace():
    """A cotangent that is an eigenvector: one product is enough, the rest must not spoil it."""
    p = problems.quadratic(M=5, T=30)
    vector = jnp.linalg.eigh(p.S["G"])[1][:, 1]
    f = lambda w, lam, S: jnp.dot(w, vector)
    want = bx.hypergradient(f, p.xi, bx.Reverse(), T=30)(p.lam, p.S).h
    for rule in (bx.Krylov(1, 1), bx.Krylov(2, 5), bx.AdaptiveKrylov(1e-8)):
        assert_close(bx.hypergradient(f, p.xi, rule, T=30)(p.lam, p.S).h, want)


def test_many_hyperparameters_change_the_bookkeeping_not_the_answer():
    """With N > 4 M the B q are not kept: one more product a piece, and the same result."""
    p = problems.quadratic(M=4, T=20)
    g = lambda w, lam, S: p.xi.g(w, jnp.sum(lam, axis=0), S)
    xi = bx.Descent(g, p.xi.init, optax.sgd(0.4))
    few, many = p.lam[None] / 1, jnp.tile(p.lam[None] / 5, (5, 1))
    rule = bx.Krylov(2, 3)
    a = bx.hypergradient(p.f, xi, rule, T=20)(few, p.S)
    b = bx.hypergradient(p.f, xi, rule, T=20)(many, p.S)
    assert int(b.report["products"]) == int(a.report["products"]) + 2
    assert error_between(b.h[0], a.h[0]) < 0.05


def error_between(a, b):
    return float(jnp.linalg.norm(a - b) / jnp.linalg.norm(b))


CLOSE = {
    "reweighting": problems.reweighting(n=40, T=100),
    "hyper_representation": problems.hyper_representation(T=100),
    "momentum": problems.reweighting(n=40, T=100).with_inner(optax.sgd(0.1, momentum=0.8)),
}


@pytest.mark.parametrize("name", CLOSE)
def test_ten_products_beat_truncation_at_the_same_cost(name):
    p = CLOSE[name]
    full = run(p, bx.Reverse()).h
    krylov = error(p, bx.Krylov(1, 10), full)
    assert krylov < 0.05
    assert krylov < error(p, bx.Reverse(K=10), full) / 5


def test_pieces_lie_where_the_fixed_form_puts_them_less_the_exact_steps():
    table = _krylov_path.pieces_table(37, 4)
    for i, pieces in enumerate((1, 2, 4)):
        cuts, nodes = _krylov.layout(0, 37, pieces)
        want = np.stack([cuts[:-1], nodes, cuts[1:] - 1], axis=1)
        assert np.array_equal(table[i, :pieces], want)
        assert np.all(table[i, pieces:, 2] == -1)
    shorter = _krylov_path.cut(jnp.asarray(table[2, 0]), jnp.asarray(8, jnp.int32))
    assert tuple(map(int, shorter)) == (8, 8, 8, 1)
    gone = _krylov_path.cut(jnp.asarray(table[2, 0]), jnp.asarray(10, jnp.int32))
    assert int(gone[3]) == 0


@pytest.mark.parametrize(
    "moves, head",
    [(np.ones(50), 0), (0.85 ** np.arange(50), 8), (0.95 ** np.arange(100), 0)],
    ids=["even", "fast", "slow"],
)
def test_first_steps_are_exact_if_they_are_much_of_the_path(moves, head):
    assert int(_krylov_path._violent_steps(jnp.asarray(moves), 9)) == head


@pytest.mark.parametrize("sample, drawn", [(None, 0.0), (problems.minibatch(5), 0.5)])
def test_a_drawn_step_is_told_from_a_drifting_one(sample, drawn):
    p = problems.reweighting(n=40, T=12)
    xi = p.with_inner(optax.sgd(0.1), sample).xi if sample else p.xi
    path = _krylov_path.walk(xi, p.lam, p.S, 12, _krylov_path.pieces_table(12, 1))
    assert (float(path.drawn) > drawn) if sample else (float(path.drawn) == 0)


@pytest.mark.parametrize("name", CLOSE)
@pytest.mark.parametrize("rtol", [pytest.param(0.1, marks=pytest.mark.slow), 0.01])
def test_the_tolerance_is_met_and_the_estimate_is_honest(name, rtol):
    p = CLOSE[name]
    full = run(p, bx.Reverse()).h
    out = run(p, bx.AdaptiveKrylov(rtol))
    true = error(p, bx.AdaptiveKrylov(rtol), full)
    report = {k: float(v) for k, v in out.report.items()}
    assert true <= report["error"] <= rtol
    parts = report["subspace"] + report["freezing"]
    assert report["error"] == pytest.approx(parts * (1 + parts))
    assert report["products"] < p.T / (3 if rtol > 0.05 else 2)


@pytest.mark.slow
def test_the_estimate_covers_a_broad_set():
    """True error below the estimate in 95 % of the cases, and not far below in the median."""
    inner = [
        optax.sgd(0.1),
        optax.sgd(0.5),
        optax.sgd(0.1, momentum=0.8),
        optax.adam(0.01, eps_root=1e-6),
    ]
    cases = []
    for make in (problems.reweighting, problems.hyper_representation):
        for opt in inner:
            cases += _compare([make(n=20, T=40, seed=s).with_inner(opt) for s in range(26)])
    true, estimate = np.array(cases).T
    assert len(true) >= 200
    assert np.mean(true <= estimate) >= 0.95
    ratio = (estimate / true)[np.isfinite(estimate) & (true > 1e-9)]
    assert np.median(ratio) <= 10
    trusted = estimate < 0.5
    assert np.mean(trusted) > 0.5
    assert np.mean(true[trusted] <= estimate[trusted]) >= 0.95


def _compare(seeds):
    """(true, estimated) relative error of the pullback, all seeds in one program."""
    p = seeds[0]
    stack = lambda get: jax.tree.map(lambda *a: jnp.stack(a), *[get(q) for q in seeds])

    def pullback(rule, lam, S):
        w, pull = rule.vjp(p.xi, lam, S, p.T)
        return pull(jax.grad(p.f)(w, lam, S))

    @jax.jit
    @jax.vmap
    def both(lam, S):
        full, _ = pullback(bx.Reverse(), lam, S)
        h, report = pullback(bx.AdaptiveKrylov(0.1, max_rank=10), lam, S)
        norm = lambda x: optax.tree.norm(x)
        gap = norm(jax.tree.map(lambda a, b: a - b, h, full)) / norm(full)
        return gap, report["error"]

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", bx.ToleranceWarning)
        out = both(stack(lambda q: q.lam), stack(lambda q: q.S))
        jax.effects_barrier()
    return list(zip(*map(np.asarray, out), strict=True))


@pytest.mark.parametrize(
    "inner, sample",
    [(optax.adam(0.03, eps_root=1e-8), None), (optax.sgd(0.3), problems.minibatch(5))],
    ids=["adam", "minibatch"],
)
def test_what_cannot_be_done_is_said(inner, sample):
    """Adam's moments and the noise of minibatches move the Jacobian from step to step."""
    p = problems.reweighting(n=40, T=60)
    p = p.with_inner(inner, sample) if sample else p.with_inner(inner)
    with pytest.warns(bx.ToleranceWarning, match="AdaptiveKrylov.*did not reach its tolerance"):
        out = run(p, bx.AdaptiveKrylov(0.01))
        jax.effects_barrier()
    assert float(out.report["error"]) > 0.01


def test_powers_of_a_swinging_loop_alternate():
    """C_{i+1} = (H + sign_i D) C_i and both sums, against matrices multiplied one by one."""
    A, D = np.diag([-0.9, 0.5, 0.8]), 0.1 * np.ones((3, 3))
    product = lambda a: (jnp.asarray(A) @ a, a)
    space = grow(begin(jnp.ones(3), jnp.zeros(3), 4, True), product, 3)
    Q = np.asarray(space.Q)[:3]
    inside = np.zeros((5, 5))
    inside[:3, :3] = Q @ D @ Q.T
    swing = Swing(jnp.zeros(5), jnp.asarray(inside), jnp.zeros(3), jnp.asarray(-1.0))
    got = powers(space, jnp.asarray(6), 8, swing, keep=False)
    c, plain, signed = np.ones(3), 0.0, 0.0
    for i in range(6):
        sign = 1.0 if i % 2 else -1.0
        plain, signed, c = plain + c, signed + sign * c, (A + sign * D) @ c
    for sums, want in ((got.total, plain), (got.swung, signed), (got.end, c)):
        assert_close(jnp.asarray(np.asarray(sums)[:3] @ Q), jnp.asarray(want))


def test_expanding_pieces_are_said():
    """w grows: cotangents would be raised to a power that means nothing."""
    g = lambda w, lam, S: -jnp.sum(jnp.cosh(0.1 * (w - lam))) * 10
    xi = bx.Descent(g, bx.constant(jnp.zeros(6)), optax.sgd(0.4))
    hg = bx.hypergradient(lambda w, lam, S: jnp.sum(w), xi, bx.Krylov(1, 3), T=40)
    with pytest.warns(bx.ToleranceWarning, match="expand cotangents from step to step"):
        out = hg(jnp.linspace(0.1, 2.0, 6))
        jax.effects_barrier()
    assert np.isinf(out.report["subspace"])


def test_float32_loses_no_orthogonality():
    single = lambda x: jax.tree.map(lambda a: a.astype(jnp.float32), x)
    p = problems.quadratic(M=12, T=200, gamma=1.5)
    xi = bx.Descent(p.xi.g, bx.constant(single(p.xi.init.w)), optax.sgd(1.5))
    out = bx.hypergradient(p.f, xi, bx.Krylov(1, 12), T=200)(single(p.lam), single(p.S))
    assert out.h.dtype == jnp.float32
    assert_close(out.h.astype(float), p.finite(p.lam, p.S), 1e-4)


def test_learning_rates_and_starts_are_seen():
    p = problems.logistic(n=20, T=60)
    lam = {"penalty": p.lam, "rate": jnp.asarray(-1.0), "start": jnp.zeros(5)}
    g = lambda w, lam, S: p.xi.g(w, lam["penalty"], S)
    init = lambda lam, S: {"slope": lam["start"], "offset": jnp.zeros(())}
    xi = bx.Descent(g, init, lambda lam: optax.sgd(jnp.exp(lam["rate"])))
    q = problems.Problem("tuned", p.f, xi, lam, p.S, 60)
    full = run(q, bx.Reverse()).h
    got = run(q, bx.AdaptiveKrylov(0.1)).h
    for name in lam:
        assert error_between(jnp.ravel(got[name]), jnp.ravel(full[name])) < 0.1, name


def times(primitive, jaxpr):
    """How often a primitive stands in a program, with all that it calls."""
    count = sum(eqn.primitive.name == primitive for eqn in jaxpr.eqns)
    values = jax.tree.leaves([list(eqn.params.values()) for eqn in jaxpr.eqns])
    inside = [getattr(x, "jaxpr", x) for x in values]
    return count + sum(times(primitive, x) for x in inside if hasattr(x, "eqns"))


@pytest.mark.parametrize(
    ("rule", "steps", "pulled_back"),
    [(bx.Reverse(), 1, 1), (bx.Krylov(2, 3), 2, 2), (bx.AdaptiveKrylov(0.1), 4, 4)],
)
def test_a_step_stands_in_the_program_so_many_times(rule, steps, pulled_back):
    """What compiling costs. In a step there is one cosh, and two where it is pulled back."""
    g = lambda w, lam, S: jnp.sum(jnp.sinh(w) * lam)
    xi, ones = bx.Descent(g, bx.constant(jnp.ones(3)), optax.sgd(0.01)), jnp.ones(3)
    program = jax.make_jaxpr(lambda lam: rule.vjp(xi, lam, None, 20)[1](ones))(ones)
    assert times("cosh", program.jaxpr) == steps + 2 * pulled_back
