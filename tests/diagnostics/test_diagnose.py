"""`diagnose` on problems whose answers are known."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import bilevax as bx
from bilevax import problems
from bilevax.diagnostics._diagnose import _measure

length = lambda x: float(np.sqrt(sum(np.sum(np.square(a)) for a in jax.tree.leaves(x))))


def quadratic_loop(spectrum, *, gamma=1.0, direct=0.0, start=None, opt=None):
    """g = sum_i c_i (w_i - lam_i)^2 / 2 from w = 2; f = |w - 1|^2 / 2 + direct * sum(lam)."""
    c = jnp.asarray(spectrum)
    g = lambda w, lam, S: jnp.sum(c * (w - lam) ** 2) / 2
    f = lambda w, lam, S: jnp.sum((w - 1.0) ** 2) / 2 + direct * jnp.sum(lam)
    init = start or bx.constant(jnp.full(c.shape, 2.0))
    return f, bx.Descent(g, init, opt or optax.sgd(gamma)), jnp.zeros(c.shape)


def first(f, xi, lam, T, **more):
    d = bx.diagnose(f, xi, lam, T=T, **more)
    assert str(d).startswith(f"* {d.advice[0]}")
    return d.advice[0], d


@pytest.mark.parametrize("T", [1, 7, 16, 23])
def test_every_depth_is_that_of_reverse(T):
    p = problems.logistic()
    xi = bx.Descent(p.xi.g, p.xi.init, optax.adam(0.1, eps_root=1e-8))
    d = bx.diagnose(p.f, xi, p.lam, p.S, T=T)
    exact = bx.hypergradient(p.f, xi, bx.Reverse(), T=T)(p.lam, p.S).h
    assert d.depths.tolist() == list(range(1, T + 1))
    for K in {1, 2, (T + 1) // 2, T} - {T + 1}:
        if K > T:
            continue
        h = bx.hypergradient(p.f, xi, bx.Reverse(K=K), T=T)(p.lam, p.S).h
        i = K - 1
        np.testing.assert_allclose(
            d.bias[i], length(jax.tree.map(jnp.subtract, h, exact)), atol=1e-12
        )
        dot = sum(jnp.vdot(a, b) for a, b in zip(*map(jax.tree.leaves, (h, exact)), strict=True))
        np.testing.assert_allclose(d.cosine[i], dot / length(h) / length(exact), rtol=1e-9)
        np.testing.assert_allclose(d.descent[i], dot / length(exact) ** 2, rtol=1e-9)


def test_a_few_depths_are_those_of_all():
    p = problems.ridge()
    every = bx.diagnose(p.f, p.xi, p.lam, p.S, T=50)
    few = bx.diagnose(p.f, p.xi, p.lam, p.S, T=50, depths=(20, 3, 50), lanczos=0)
    assert few.depths.tolist() == [3, 20, 50] and few.theory is None and few.bound is None
    np.testing.assert_allclose(few.bias, every.bias[[2, 19, 49]], atol=1e-14)
    assert "not measured" in str(few)


def test_a_few_steps_suffice():
    f, xi, lam = quadratic_loop([0.8, 0.9])  # forgets 80 % in a step
    text, d = first(f, xi, lam, 30)
    assert (
        text == "Reverse(K=2) is within 10 % of the whole hypergradient, Reverse(K=3) within 1 %."
    )
    np.testing.assert_allclose(d.contraction, 0.2, rtol=0.05)
    assert any("stationary to the eye" in sentence for sentence in d.advice)


def test_bounds_and_spectrum_of_a_quadratic():
    f, xi, lam = quadratic_loop([0.05, 0.3, 0.7])
    d = bx.diagnose(f, xi, lam, T=40)
    np.testing.assert_allclose([d.theory.gamma_alpha, d.theory.gamma_beta], [0.05, 0.7], rtol=1e-6)
    np.testing.assert_allclose(d.theory.norm_B, 0.7, rtol=1e-3)
    np.testing.assert_allclose(d.theory.least_singular, 0.05 / 0.7, rtol=1e-6)
    assert (d.bias <= d.bound * (1 + 1e-9)).all() and (d.bias <= d.local_bound * (1 + 1e-9)).all()
    np.testing.assert_allclose(
        d.bound, 0.95**d.depths / 0.05 * d.slope * d.theory.norm_B, rtol=1e-6
    )


def test_slow_contraction_wants_more_than_truncation():
    f, xi, lam = quadratic_loop([0.008, 0.02])
    text, _ = first(f, xi, lam, 100)
    assert "Truncation loses too much: after half of the T = 100 steps" in text
    assert "AdaptiveKrylov(rtol=0.1), or Reverse(segment=10)" in text


def test_hyperparameters_of_the_start_alone():
    f, xi, _ = quadratic_loop([0.5, 0.5])
    g = lambda w, lam, S: jnp.sum(w**2) / 4
    xi = bx.Descent(g, lambda lam, S: lam["start"], optax.sgd(0.1))
    text, d = first(f_of(f), xi, {"start": jnp.ones(2)}, 10)
    assert text.startswith("lam['start'] enters only through the initialisation")
    assert "Reverse(segment=4)" in text
    np.testing.assert_allclose(d.error, 1.0)


def f_of(f):
    return lambda w, lam, S: jnp.sum((w - 1.0) ** 2)


def test_a_loop_that_forgets_nothing():
    g = lambda w, lam, S: -lam @ w  # flat: A = I
    xi = bx.Descent(g, bx.constant(jnp.zeros(3)), optax.sgd(0.01))
    f = lambda w, lam, S: jnp.sum((w - 1.0) ** 2)
    text, d = first(f, xi, jnp.ones(3), 40)
    assert text.startswith("No K is enough: the inner loop does not forget")
    assert any("not strongly convex around w_T" in sentence for sentence in d.advice)
    assert d.bound is None


def test_a_loop_that_expands():
    g = lambda w, lam, S: -jnp.sum((w - lam) ** 2) / 2
    xi = bx.Descent(g, bx.constant(jnp.ones(2)), optax.sgd(0.1))
    text, d = first(lambda w, lam, S: jnp.sum(w), xi, jnp.zeros(2), 20)
    assert text.startswith("No K is enough") and d.contraction > 1.09


def test_an_unstable_loop_is_said_first():
    """And nothing but words: no warning of numpy's, which would be an error here."""
    p = problems.quadratic(M=5, T=60, gamma=9.0)
    d = bx.diagnose(p.f, p.xi, p.lam, p.S, T=60)
    assert d.advice[0].startswith("The inner loop is unstable: gamma beta = 9 > 2. Lower")
    assert any("|grad g| did not fall" in s for s in d.advice)


def test_direction():
    """Where K is enough as a direction long before it is enough in length."""
    p = problems.quadratic(M=5, T=100, gamma=0.4)
    d = bx.diagnose(p.f, p.xi, p.lam, p.S, T=100)
    (said,) = [s for s in d.advice if s.startswith("As a direction Reverse(K=")]
    K = int(said.split("K=")[1].split(")")[0])
    assert d.cosine[K - 1] >= 0.95 and (K == 1 or d.cosine[K - 2] < 0.95) and d.enough(0.1) > K


def test_interference():
    p = problems.counterexample(T=40)
    d = bx.diagnose(p.f, p.xi, p.lam, T=40)
    assert any(s.startswith("Interference: up to K = ") for s in d.advice[:2])
    f, xi, lam = quadratic_loop([0.8, 0.9])
    assert bx.diagnose(f, xi, lam, T=20).interference is None  # f does not see lam: it holds
    f, xi, lam = quadratic_loop([0.8, 0.9], direct=-1.0)  # the same direction as the pullback
    d = bx.diagnose(f, xi, lam, T=20)
    assert (d.interference > 0).all() and "Interference" not in str(d)


def test_momentum_has_no_symmetric_step():
    f, xi, lam = quadratic_loop([0.1, 0.5], opt=optax.sgd(0.3, momentum=0.9))
    _, d = first(f, xi, lam, 60)
    assert d.theory.gamma_alpha is None and d.bound is None
    assert "not defined, A is not symmetric" in str(d)


def test_more_states_than_hyperparameters():
    g = lambda w, lam, S: jnp.sum((w - lam) ** 2) / 2
    xi = bx.Descent(g, bx.constant(jnp.ones(4)), optax.sgd(0.5))
    d = bx.diagnose(lambda w, lam, S: jnp.sum(w), xi, jnp.asarray(0.3), T=20)
    assert "N = 1 < M = 4: B_t cannot have full column rank" in str(d)


def test_steps_too_large_for_the_theory():
    f, xi, lam = quadratic_loop([0.3, 1.5])
    d = bx.diagnose(f, xi, lam, T=50)
    assert "gamma beta = 1.5 > 1: Prop. 3.1 does not apply as it stands" in str(d)


def test_nothing_to_say_about_zero():
    _, xi, lam = quadratic_loop([0.5])
    text, _ = first(lambda w, lam, S: 0.0 * jnp.sum(w), xi, lam, 5)
    assert "exactly zero" in text


def test_dictionary_and_plot():
    p = problems.ridge()
    d = bx.diagnose(p.f, p.xi, p.lam, p.S, T=30)
    again = json.loads(json.dumps(d.as_dict()))
    np.testing.assert_allclose(again["error"], d.error)
    assert again["advice"] == d.advice and again["theory"]["symmetric"] is True
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("agg")
    lines = d.plot().get_lines()
    assert [line.get_label() for line in lines][1:3] == ["bound, Eq. 10", "bound, Eq. 9"]
    np.testing.assert_allclose(lines[0].get_ydata(), d.bias)


def test_memory_is_that_of_two_roots_of_the_horizon():
    """Bytes of the compiled program with a few depths: O(sqrt(T) M), not T M."""
    p = problems.reweighting(n=40)
    size = {}
    for T in (64, 1024):
        args = (p.f, p.xi, p.lam, p.S, T, jnp.asarray([1, 5, 20], jnp.int32))
        size[T] = _measure.lower(*args).compile().compiled.memory_analysis().temp_size_in_bytes
    assert size[1024] < 5 * size[64]


MISTAKES = {
    "depths must lie between 1 and T = 20": dict(depths=(5, 30)),
    "depths must be at least 1, got 0": dict(depths=(0, 3)),
    "lanczos must be at least 0": dict(lanczos=-1),
    "T must be at least 1": dict(T=0),
    r"lam must be a floating array, got dtype int": dict(lam=jnp.arange(2)),
}


@pytest.mark.parametrize("text", MISTAKES)
def test_mistakes_are_named(text):
    f, xi, lam = quadratic_loop([0.5, 0.6])
    more = {"lam": lam, "T": 20} | MISTAKES[text]
    with pytest.raises((TypeError, ValueError), match=text):
        bx.diagnose(f, xi, more.pop("lam"), **more)


def test_a_loop_that_diverges_is_named():
    f, xi, lam = quadratic_loop([1e9])
    with pytest.raises(FloatingPointError, match="the inner loop diverged"):
        bx.diagnose(f, xi, lam, T=60)
