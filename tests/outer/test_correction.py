"""Audits report a rule's true error; a correction removes its bias, and never loses a run."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from running import ADAM, P, equal, run, same, saved_run

import bilevax as bx
from bilevax import problems
from bilevax._rules.base import apply
from bilevax._tree import norm
from bilevax.extend import Channel

EXACT = bx.Reverse(segment=4)
CORRECT = bx.Correction(EXACT)


def pulled(vjp):
    """What a way back makes of a vector of ones."""

    @jax.jit
    def way(lam):
        w, pull = apply(vjp, P.xi, lam, P.S, 20)
        return pull(jax.tree.map(jnp.ones_like, w))

    return way(P.lam)


@functools.cache
def alone(rule):
    return pulled(rule.vjp)[0]


@pytest.mark.parametrize("exact", [bx.Reverse(), EXACT, bx.Forward()], ids=repr)
@pytest.mark.parametrize("rule", [bx.Reverse(K=1), bx.Reverse(K=20), bx.Krylov(1, 3)], ids=repr)
def test_an_audit_gives_both_rules(rule, exact):
    """Also where they share the way back."""
    h, _, h_exact = pulled(functools.partial(rule.audited, exact))
    np.testing.assert_allclose(h, alone(rule), rtol=1e-12)
    np.testing.assert_allclose(h_exact, alone(exact), rtol=1e-12)


def test_an_audit_changes_nothing_and_tells_the_truth():
    plain = saved_run(None, 12)
    audited = saved_run(None, 12, audit=bx.Audit(EXACT, share=0.5))
    assert equal(audited.lam, plain.lam) and equal(audited.history["value"], plain.history["value"])
    np.testing.assert_array_equal(np.flatnonzero(audited.history["audit"]), [0, 4, 8])
    h, exact = (
        bx.hypergradient(P.f, P.xi, r, T=20)(P.lam, P.S).h for r in (bx.Reverse(K=5), EXACT)
    )
    error = norm(h - exact) / norm(exact)
    cosine = jnp.vdot(h, exact) / norm(h) / norm(exact)
    np.testing.assert_allclose(audited.history["audit_error"][:4], error, rtol=1e-10)
    np.testing.assert_allclose(audited.history["audit_cosine"][:4], cosine, rtol=1e-10)


def test_an_audit_of_a_bad_rule_comes_no_more_often(recwarn):
    """Nothing is refused: the run follows its rule, and says nothing of the exact one."""
    rule = Bad("uphill", far=-1.0)  # everywhere
    audited = saved_run(None, 12, rule=rule, audit=bx.Audit(EXACT, share=0.5))
    np.testing.assert_array_equal(np.flatnonzero(audited.history["audit"]), [0, 4, 8])
    assert audited.history["audit_cosine"].max() < 0 == audited.history["audit_refused"].sum()
    assert not recwarn.list


def test_audits_of_drawn_contexts_compare_means():
    draw = lambda key: P.S | {"train": (P.S["train"][0], jax.random.normal(key, (30,)))}
    more = dict(contexts=draw, key=jax.random.key(0), batch=4, at_once=2)
    plain, audited = run(**more), run(**more, audit=bx.Audit(EXACT, share=0.5))
    assert equal(plain.lam, audited.lam)
    keys = jax.random.split(jax.random.fold_in(jax.random.key(0), 0), 4)
    mean = lambda rule: jnp.mean(
        jnp.stack([bx.hypergradient(P.f, P.xi, rule, T=20)(P.lam, draw(k)).h for k in keys]), 0
    )
    h, exact = mean(bx.Reverse(K=5)), mean(EXACT)
    np.testing.assert_allclose(
        audited.history["audit_error"][0], norm(h - exact) / norm(exact), rtol=1e-8
    )


@pytest.mark.parametrize("K", [1, 5, 10, 25])
def test_the_toy_problem_ends_at_its_optimum(K):
    """f~ of section 4.1, where K-RMD ends 0.55, 0.25, 0.11 and 0.018 away from it."""
    p = problems.toy(100, 0.1, 5.0)
    go = functools.partial(
        bx.minimize, p.f, p.xi, bx.Reverse(K=K), jnp.asarray([-1.0, 1.0]), T=p.T, steps=100, S=p.S,
        optimizer=optax.sgd(0.01),
    )  # fmt: skip
    best, slope = go().lam, lambda lam: p.finite(lam, p.S)
    assert norm(slope(best)) > 0.1
    newton = jax.jit(lambda lam: lam - jnp.linalg.solve(jax.jacfwd(slope)(lam), slope(lam)))
    for _ in range(20):
        best = newton(best)
    assert norm(go(correct=bx.Correction(bx.Reverse())).lam - best) < 1e-6


def test_the_counterexample_keeps_the_optimum_that_truncation_leaves():
    p = problems.counterexample()
    go = functools.partial(
        bx.minimize, p.f, p.xi, bx.Reverse(K=1), p.lam, T=p.T, steps=100, S=p.S,
        optimizer=optax.sgd(0.1),
    )  # fmt: skip
    assert abs(go().lam - p.lam) > 0.3
    with pytest.warns(bx.ToleranceWarning, match="could not be followed"):  # h is zero there
        assert abs(go(correct=True).lam - p.lam) < 1e-3


class Bad(bx.extend.AbstractRule):
    """Good, until lam has moved by so much; then what it gives is of no use."""

    kind: str = "nan"
    far: float = 0.3

    def vjp(self, xi, lam, S, T):
        w, pull = bx.Reverse(K=5).vjp(xi, lam, S, T)

        def bad(alpha):
            h, report = pull(alpha)
            gone = norm(lam - P.lam) > self.far
            worse = {"nan": h * jnp.nan, "huge": 1e9 * h, "uphill": -50.0 * h, "says so": h}
            if self.kind == "says so":
                report = {"error": jnp.where(gone, jnp.inf, 0.1)}
            return jnp.where(gone, worse[self.kind], h), report

        return w, bad

    def sees(self):
        return Channel.STEP


@pytest.mark.parametrize("kind", ["nan", "huge", "uphill", "says so"])
def test_a_rule_that_fails_costs_audits_and_not_the_run(kind):
    exact = saved_run(None, 60, rule=bx.Reverse())
    with pytest.warns(bx.ToleranceWarning, match="could not be followed"):
        result = saved_run(None, 60, rule=Bad(kind), correct=CORRECT)
    value = lambda r: bx.hypergradient(P.f, P.xi, EXACT, T=20)(r.lam, P.S).value
    start = bx.hypergradient(P.f, P.xi, EXACT, T=20)(P.lam, P.S).value
    assert value(result) - value(exact) < 0.05 * (start - value(exact))
    refused = result.history["audit_refused"]
    assert refused.sum() > 10 and not np.any(refused[~result.history["audit"].astype(bool)])
    assert np.isfinite(result.history["h_norm"]).all()


def test_frozen_steps_that_expand_cost_audits_and_not_the_run():
    """Krylov says so by an infinite `subspace`."""
    g = lambda w, lam, S: -jnp.sum(jnp.cosh(0.1 * (w - lam))) * 10
    xi = bx.Descent(g, bx.constant(jnp.zeros(6)), optax.sgd(0.4))
    f = lambda w, lam, S: jnp.mean(w**2)
    go = functools.partial(
        bx.minimize, f, xi, lam=jnp.linspace(0.1, 2.0, 6), T=40, S=None, steps=5,
        optimizer=optax.sgd(0.01),
    )  # fmt: skip
    with pytest.warns(bx.ToleranceWarning):
        result = go(rule=bx.Krylov(1, 3), correct=CORRECT)
    assert result.history["audit_refused"].all()
    np.testing.assert_allclose(result.lam, go(rule=bx.Reverse()).lam, rtol=1e-10)


def test_it_goes_on_to_the_same_bits(tmp_path):
    whole = saved_run(None, 12, correct=CORRECT)
    for steps in (3, 6, 12):
        result = saved_run(tmp_path / "a", steps, correct=CORRECT)
    assert same(result, whole)
    with pytest.raises(bx.CheckpointMismatchError):
        saved_run(tmp_path / "a", 12)
    with pytest.raises(bx.CheckpointMismatchError):
        saved_run(tmp_path / "a", 12, correct=bx.Correction(EXACT, share=0.2))


def test_a_line_search_follows_the_corrected_gradient():
    result = saved_run(None, 10, optimizer=optax.lbfgs(), correct=CORRECT)
    exact = bx.hypergradient(P.f, P.xi, EXACT, T=20)
    assert norm(exact(result.lam, P.S).h) < 0.2 * norm(exact(P.lam, P.S).h)


def test_its_arguments():
    draw = dict(contexts=lambda key: P.S, key=jax.random.key(0))
    with pytest.raises(ValueError, match="correct is for one fixed S.*audit=True"):
        run(**draw, correct=True)
    with pytest.raises(ValueError, match="leave audit out"):
        run(S=P.S, correct=True, audit=True)
    with pytest.raises(TypeError, match=r"correct must be True, False or a bx.Correction\(...\)"):
        run(S=P.S, correct=bx.Audit())
    with pytest.raises(ValueError, match="share must be between 0 and 1, got 2"):
        bx.Correction(share=2)
    with pytest.raises(ValueError, match=r"rule of Audit must be exact, but Reverse\(K=3\)"):
        bx.Audit(bx.Reverse(K=3))


def test_a_hypergradient_that_is_zero_has_a_warning_in_a_run():
    g = lambda w, lam, S: jnp.sum((w - lam) ** 2)
    rate = lambda count: jnp.where(count < 5, 0.1, 0.0)  # the last steps do nothing
    xi = bx.Descent(g, bx.constant(jnp.zeros(2)), optax.sgd(rate))
    f = lambda w, lam, S: jnp.sum((w - 1.0) ** 2)
    with pytest.warns(bx.InvisibleLeafWarning, match="exactly zero") as said:
        run(bx.Reverse(K=2), f=f, xi=xi, lam=jnp.zeros(2), T=9, optimizer=ADAM)
    assert sum("exactly zero" in str(w.message) for w in said) == 1


def test_adaptive_krylov_falls_back_to_what_is_exact():
    p = problems.quadratic(T=40)
    h = lambda rule: bx.hypergradient(p.f, p.xi, rule, T=p.T)(p.lam, p.S)
    exact = h(bx.Reverse()).h
    poor = h(bx.AdaptiveKrylov(1e-12, 1, 3, fallback=bx.Reverse(segment=5)))
    assert poor.report["fallback"] == 1 and norm(poor.h - exact) <= 1e-12 * norm(exact)
    good = h(bx.AdaptiveKrylov(0.5, fallback=bx.Reverse(segment=5)))
    assert good.report["fallback"] == 0 and 0 < norm(good.h - exact) < 0.5 * norm(exact)
    with pytest.raises(ValueError, match="fallback must be exact"):
        bx.AdaptiveKrylov(0.1, fallback=bx.Reverse(K=3))
