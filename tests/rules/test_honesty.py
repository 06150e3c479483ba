"""No rule is wrong without a word: lam that acts rarely, Jacobians that jump, odd spectra."""

import itertools
import warnings

import jax
import jax.numpy as jnp
import lineax as lx
import numpy as np
import optax
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracle import assert_close

import bilevax as bx

T = 23
KEEP = jnp.linspace(0.9, 0.3, 3)


def loop(act):
    """s <- KEEP s + act(lam, t): the Jacobian in lam depends on the number of the step."""
    return bx.Dynamics(lambda lam, S: jnp.zeros(3), lambda s, lam, S, t: KEEP * s + act(lam, t))


def descent(opt):
    return bx.Descent(lambda w, lam, S: jnp.sum((w - lam[:3]) ** 2), start, opt)


start = bx.constant(jnp.ones(3))
cycle = lambda count: jnp.where(count % 10 == 3, 0.4, 0.001)
LOOPS = {
    "an entry for each step": loop(lambda lam, t: lam[t] * jnp.ones(3)),
    "early steps only": loop(lambda lam, t: jnp.where(t < 4, lam[:3], 0.0)),
    "every fourth step": loop(lambda lam, t: jnp.where(t % 4 == 0, lam[:3], 0.0)),
    "every fourth, by a mask": loop(lambda lam, t: (t % 4 == 0).astype(float) * lam[:3]),
    "every fourth, by cond": loop(
        lambda lam, t: jax.lax.cond(t % 4 == 0, lambda: lam[:3], lambda: jnp.zeros(3))
    ),
    "MultiSteps": descent(optax.MultiSteps(optax.sgd(0.1), 5)),
    "a rate that jumps": descent(optax.sgd(cycle)),
    "a rate that ends at zero": descent(optax.sgd(optax.cosine_decay_schedule(0.2, T - 1))),
}
RULES = [
    bx.Reverse(K=3),
    bx.AdaptiveReverse(0.01, max_K=T),
    bx.AdaptiveReverse(0.01, max_K=8),
    bx.Neumann(3),
    bx.Krylov(2, 4),
    bx.AdaptiveKrylov(0.1),
]
f = lambda w, lam, S: jnp.sum((w - 2.0) ** 2)
flat = lambda h: np.concatenate([np.ravel(a) for a in jax.tree.leaves(h)])


def estimate(xi, rule, lam):
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        out = bx.hypergradient(f, xi, rule, T=T)(lam)
        jax.effects_barrier()
    return out, said


FAST = ("an entry for each step", "MultiSteps", "a rate that jumps")
CASES = [pytest.param(n, marks=() if n in FAST else pytest.mark.slow) for n in LOOPS]


@pytest.mark.parametrize("rule", RULES, ids=repr)
@pytest.mark.parametrize("name", CASES)
def test_no_zero_and_no_wrong_estimate_without_a_word(name, rule):
    lam = jnp.linspace(0.1, 0.4, T)
    true = flat(estimate(LOOPS[name], bx.Reverse(), lam)[0].h)
    out, said = estimate(LOOPS[name], rule, lam)
    assert np.any(true != 0)
    assert said or np.any(flat(out.h) != 0)
    reported = out.report.get("tail", out.report.get("error"))
    if reported is not None and not said:
        assert np.linalg.norm(flat(out.h) - true) <= float(reported) * np.linalg.norm(true) + 1e-9


@pytest.mark.parametrize("rule", [bx.Reverse(K=3), bx.Neumann(3), bx.Krylov(2, 4)], ids=repr)
def test_entries_of_steps_that_are_not_seen_are_named(rule):
    """Their zeros are no zeros of h, which is not zero in the steps that are seen."""
    xi = loop(lambda lam, t: lam["rates"][t] + lam["bias"])
    with pytest.warns(bx.InvisibleLeafWarning, match=r"^lam\['rates'\] .*Reverse\(segment="):
        bx.hypergradient(f, xi, rule, T=T)({"rates": jnp.ones(T), "bias": jnp.ones(3)})


@pytest.mark.parametrize("opt", [optax.sgd(0.1), optax.adam(0.1, eps_root=1e-8)])
def test_nothing_is_said_where_lam_acts_alike(opt):
    """Nor of minibatches and labels, which the number of a step picks, but not from lam."""
    S = {"x": jnp.eye(3), "y": jnp.arange(3)}
    sample = lambda S, t: jax.tree.map(lambda a: a[t % 3][None], S)
    logits = lambda w, lam, S: jax.nn.log_softmax(S["x"] * w[None] * lam[:3][None])
    g = lambda w, lam, S: -jnp.sum(jnp.take_along_axis(logits(w, lam, S), S["y"][:, None], 1))
    xi = bx.Descent(g, start, opt, sample)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        bx.hypergradient(f, xi, bx.Reverse(K=3), T=T)(jnp.ones(T), S)


def bowl(w, lam, S):
    return w @ S @ w / 2 - w @ lam.astype(w.dtype)


def quadratic(spectrum, opt, dtype=float):
    G = jnp.asarray(np.diag(spectrum), dtype)
    return bx.Descent(bowl, bx.constant(jnp.ones(len(spectrum), dtype)), opt), G


UNIT = optax.sgd(1.0)


@pytest.mark.parametrize("M, n", [(2, 5), (4, 3)])
@settings(max_examples=5, deadline=None)
@given(data=st.data())
def test_as_many_products_as_steps_are_full_reverse_mode(M, n, data):
    """gamma beta up to 3: what is known exactly is not held back, whatever it does. More steps
    than parameters, and fewer; all spectra share the programs.
    """
    spectrum = data.draw(st.lists(st.floats(0.05, 3.0), min_size=M, max_size=M))
    xi, G = quadratic(spectrum, UNIT)
    lam = jnp.ones(M)
    run = lambda rule: bx.hypergradient(f, xi, rule, T=n)(lam, G)
    want = run(bx.Reverse()).h
    for rule in (bx.Krylov(n, 1), bx.Krylov(1, n)):
        out = run(rule)
        assert_close(out.h, want)
        assert float(out.report["subspace"]) <= 1e-9


def test_what_is_held_back_is_reported():
    """An eigenvalue of -1.05 grows eleven-fold, which four products cannot know."""
    xi, G = quadratic(np.linspace(0.1, 1.0, 6), optax.sgd(2.05))
    run = lambda rule: bx.hypergradient(f, xi, rule, T=50)(jnp.ones(6), G)
    want = flat(run(bx.Reverse()).h)
    out = run(bx.Krylov(2, 4))
    true = np.linalg.norm(flat(out.h) - want) / np.linalg.norm(want)
    assert 0.1 < true <= 2 * float(out.report["subspace"])
    assert_close(run(bx.Krylov(2, 6)).h, jnp.asarray(want))


OPTIMIZERS = {
    name: getattr(optax, name)(0.05, **extra)
    for name, extra in {
        "adam": {"eps_root": 1e-8}, "nadam": {"eps_root": 1e-8}, "amsgrad": {"eps_root": 1e-8},
        "rmsprop": {"eps": 1e-4}, "adabelief": {"eps_root": 1e-8}, "yogi": {},
    }.items()
}  # fmt: skip


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_pieces_of_one_step_are_full_reverse_mode(name):
    xi, G = quadratic([0.3, 0.8, 1.9], OPTIMIZERS[name])
    run = lambda rule: bx.hypergradient(f, xi, rule, T=4)(jnp.ones(3), G).h
    assert_close(run(bx.Krylov(4, 1)), run(bx.Reverse()))


PAIRS = list(
    itertools.product(("float64", "float32", "bfloat16"), ("float64", "float32", "float16"))
)
# Each type of w and each of lam, all of them different; and the other pairs.
ONCE = PAIRS[1], PAIRS[5], PAIRS[6]


@pytest.mark.parametrize(
    "w_type, lam_type",
    [pytest.param(*p, marks=() if p in ONCE else pytest.mark.slow) for p in PAIRS],
)
def test_any_pair_of_dtypes(w_type, lam_type):
    xi, G = quadratic([0.2, 0.7], optax.sgd(0.5), w_type)
    hg = lambda rule: bx.hypergradient(lambda w, lam, S: jnp.sum(w), xi, rule, T=12)
    for rule in (bx.Krylov(2, 2), bx.AdaptiveKrylov(0.1), bx.AdaptiveReverse(0.1, 12)):
        h = hg(rule)(jnp.ones(2, lam_type), G).h
        want = hg(bx.Reverse())(jnp.ones(2, lam_type), G).h
        assert h.dtype == lam_type
        assert_close(h.astype(float), want.astype(float), 0.1)


@pytest.mark.parametrize("rule", [bx.Krylov(1, 8), bx.Krylov(2, 3), bx.Krylov(8, 1)], ids=repr)
def test_second_derivatives_by_reverse_mode(rule):
    """Of a quartic, whose Jacobian moves, where the rule is exact; finite where it is not."""
    power = 4 if rule == bx.Krylov(8, 1) else 2
    g = lambda w, lam, S: jnp.sum(w**power) / power - w @ lam
    xi = bx.Descent(g, bx.constant(0.5 * jnp.ones(3)), optax.sgd(0.3))
    size = lambda rule: lambda lam: jnp.sum(bx.hypergradient(f, xi, rule, T=8)(lam).h ** 2)
    lam = jnp.asarray([0.1, 0.2, 0.3])
    assert_close(jax.grad(size(rule))(lam), jax.grad(size(bx.Reverse()))(lam))


def test_complex_states_are_refused_by_krylov():
    step = lambda s, lam, S, t: (0.5j * s[0] + lam.astype(complex),)
    xi = bx.Dynamics(lambda lam, S: (jnp.zeros(2, complex),), step, lambda s: s[0].real)
    for rule in (bx.Krylov(), bx.AdaptiveKrylov()):
        with pytest.raises(TypeError, match=r"needs a real state, but state\[0\] is complex128"):
            bx.hypergradient(lambda w, lam, S: jnp.sum(w), xi, rule, T=4)(jnp.ones(2))


def test_cholesky_of_an_unsymmetric_jacobian_is_refused():
    @jax.custom_vjp
    def surrogate(w):
        return jnp.sum(w**2) / 2

    skewed = jnp.asarray([[1.0, 0.0], [5.0, 1.0]])
    surrogate.defvjp(lambda w: (surrogate(w), w), lambda w, c: (c * (skewed @ w),))
    xi = bx.Descent(
        lambda w, lam, S: surrogate(w) - w @ lam, bx.constant(jnp.ones(2)), optax.sgd(0.1)
    )
    run = lambda rule: bx.hypergradient(f, xi, rule, T=9)(jnp.ones(2))
    with pytest.raises(RuntimeError, match="needs a symmetric Jacobian"):
        run(bx.Implicit(lx.Cholesky()))
    run(bx.Implicit(lx.LU()))


def test_forward_mode_follows_a_while_loop():
    halve = lambda s, lam: jax.lax.while_loop(
        lambda c: c[1] < 3, lambda c: (c[0] - 0.1 * (c[0] - lam), c[1] + 1), (s, 0)
    )[0]
    xi = bx.Dynamics(lambda lam, S: jnp.zeros(2), lambda s, lam, S, t: halve(s, lam))
    h = bx.hypergradient(lambda w, lam, S: jnp.sum(w), xi, bx.Forward(), T=4)(jnp.ones(2)).h
    assert_close(h, (1 - 0.9**12) * jnp.ones(2))


@pytest.mark.parametrize("opaque", [True, False])
def test_sharpness_aware_minimisation_runs(opaque):
    opt = optax.contrib.sam(optax.sgd(0.1), optax.sgd(0.01), opaque_mode=opaque)
    assert np.all(flat(bx.hypergradient(f, descent(opt), bx.Reverse(), T=6)(jnp.ones(3)).h) != 0)


def test_an_optimizer_with_another_protocol_is_named():
    with pytest.raises(TypeError, match="cannot be run as init.w. and update"):
        xi = descent(optax.lookahead(optax.sgd(0.1), 5, 0.5))
        bx.hypergradient(f, xi, bx.Reverse(), T=3)(jnp.ones(3))
