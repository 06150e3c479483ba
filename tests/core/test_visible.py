"""No leaf of lam is silently zero: what a rule cannot see is named, with the remedy."""

import gc
import warnings

import jax
import jax.numpy as jnp
import lineax as lx
import optax
import pytest
from memory_maps import new_garbage

import bilevax as bx
from bilevax import _visible

pytestmark = pytest.mark.eager

BLIND_TO_START = [bx.Reverse(K=2), bx.Implicit(), bx.Neumann(K=2)]
BLIND_TO_OPTIMIZER = [bx.Implicit(), bx.Neumann(K=2)]
ALL = [bx.Reverse(), bx.Forward(), *BLIND_TO_START]


def problem(direct=False):
    """c in g, start in Xi_0, rate in the optimizer, idle nowhere."""
    lam = {k: jnp.asarray(0.5) for k in ("c", "start", "rate", "idle")}
    g = lambda w, lam, S: (w - lam["c"]) ** 2
    f = lambda w, lam, S: w**2 + (sum(jax.tree.leaves(lam)) if direct else 0.0)
    init = lambda lam, S: lam["start"]
    return f, bx.Descent(g, init, lambda lam: optax.sgd(0.1 * lam["rate"])), lam


def messages(rule, direct=False):
    f, xi, lam = problem(direct)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        bx.hypergradient(f, xi, rule, T=4)(lam)
    assert all(c.category is bx.InvisibleLeafWarning for c in caught)
    return [str(c.message) for c in caught]


@pytest.mark.parametrize("rule", BLIND_TO_START, ids=repr)
def test_the_initialisation_under_truncation(rule):
    [text] = [m for m in messages(rule) if "'start'" in m]
    assert "lam['start'] enters the inner loop only through the initialisation" in text
    assert "cannot see" in text
    assert "Use Reverse(), Reverse(segment=...) or Forward()" in text


@pytest.mark.parametrize("rule", BLIND_TO_OPTIMIZER, ids=repr)
def test_the_optimizer_under_implicit_rules(rule):
    [text] = [m for m in messages(rule) if "'rate'" in m]
    assert "lam['rate'] enters the inner loop only through the optimizer" in text
    assert "or Reverse(K=...)" in text


@pytest.mark.parametrize("rule", ALL, ids=repr)
def test_a_leaf_that_is_not_connected(rule):
    [text] = [m for m in messages(rule) if "'idle'" in m]
    assert "lam['idle'] is not connected" in text
    assert "Use it, or take it out of lam." in text


@pytest.mark.parametrize("rule", [bx.Reverse(), bx.Forward(), bx.Reverse(segment=2)])
def test_exact_rules_see_all_that_is_connected(rule):
    assert [m for m in messages(rule) if "'idle'" not in m] == []


def test_a_direct_part_is_mentioned():
    """f sees every leaf here; what is missing is the part through the inner loop."""
    texts = messages(bx.Implicit(), direct=True)
    assert len(texts) == 2
    assert all("only its direct part, grad_lam f, remains" in m for m in texts)


def test_stop_gradient_and_rounding_disconnect():
    lam = {"a": jnp.asarray(1.0), "b": jnp.asarray(1.0), "c": jnp.asarray(1.0)}
    target = lambda lam: lam["a"] + jax.lax.stop_gradient(lam["b"]) + jnp.round(lam["c"])
    g = lambda w, lam, S: (w - target(lam)) ** 2
    xi = bx.Descent(g, bx.constant(jnp.asarray(0.0)), optax.sgd(0.1))
    with pytest.warns(bx.InvisibleLeafWarning) as caught:
        bx.hypergradient(lambda w, lam, S: w, xi, bx.Reverse(), T=3)(lam)
    [text] = [str(c.message) for c in caught]
    assert "each of lam['b'], lam['c'] is not connected" in text


@pytest.mark.parametrize("rule", BLIND_TO_START, ids=repr)
def test_nothing_visible_is_an_error(rule):
    g = lambda w, lam, S: w**2
    xi = bx.Descent(g, lambda lam, S: lam, optax.sgd(0.1))
    hg = bx.hypergradient(lambda w, lam, S: w**2, xi, rule, T=3)
    with pytest.raises(ValueError, match="the whole hypergradient would be zero. lam enters"):
        hg(jnp.asarray(1.0))


@pytest.mark.parametrize("f", [lambda w, lam, S: 1.0, lambda w, lam, S: jnp.round(w)])
def test_an_objective_that_does_not_read_w_is_an_error(f):
    _, xi, lam = problem()
    with pytest.raises(ValueError, match="f does not depend on its w .* Let f read w"):
        bx.hypergradient(f, xi, bx.Reverse(), T=4)(lam)


def test_an_objective_of_lam_alone_keeps_the_leaves_that_it_reads():
    _, xi, lam = problem()
    with pytest.warns(bx.InvisibleLeafWarning) as caught:
        out = bx.hypergradient(lambda w, lam, S: lam["c"] ** 2, xi, bx.Reverse(), T=4)(lam)
    [said] = [str(c.message) for c in caught if "'start'" in str(c.message)]
    assert "each of lam['rate'], lam['start'] acts through w_T" in said
    assert out.h["c"] == 1.0


def test_nothing_connected_is_an_error():
    xi = bx.Descent(lambda w, lam, S: w**2, bx.constant(jnp.asarray(1.0)), optax.sgd(0.1))
    hg = bx.hypergradient(lambda w, lam, S: w**2, xi, bx.Reverse(), T=3)
    with pytest.raises(ValueError, match="lam is not connected"):
        hg(jnp.asarray(1.0))


def test_solve_warns_when_differentiated_only():
    _, xi, lam = problem()
    bx.solve(xi, lam, T=3, rule=bx.Reverse(K=1))
    outer = lambda lam: bx.solve(xi, lam, T=3, rule=bx.Reverse(K=1))
    with pytest.warns(bx.InvisibleLeafWarning, match="only through the initialisation"):
        jax.grad(outer)(lam)


def test_fixed_points_see_the_whole_step():
    """For `Dynamics` the optimum is the fixed point of the step: nothing hides in it."""
    xi = bx.Dynamics(lambda lam, S: jnp.zeros(2), lambda s, lam, S, t: 0.5 * s + lam)
    gmres = bx.Implicit(lx.GMRES(rtol=1e-8, atol=1e-8))
    bx.hypergradient(lambda w, lam, S: jnp.sum(w), xi, gmres, T=3)(jnp.ones(2))


def test_what_a_problem_shows_is_found_once_for_all_rules():
    """And forgotten with its functions."""
    kept = lambda: [len(fun._found) for fun in (_visible.entrances, _visible._read)]
    gc.collect()
    before = kept()

    def by_four_rules():
        traced, counts = [], []
        f, xi, lam = problem()
        seen = lambda w, lam, S: traced.append(w) or f(w, lam, S)
        for rule in (bx.Reverse(), bx.Implicit(), bx.Forward(), bx.Reverse(K=2)):
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                bx.hypergradient(seen, xi, rule, T=4)(lam)
            assert any("'idle'" in str(c.message) for c in caught)  # said of each
            counts.append((len(traced), kept()))
        return counts

    with new_garbage():
        (first, at_first), *_, (last, at_last) = by_four_rules()
        assert last - first == 3 * (first - 1)  # one look, and the use of each
        assert at_first == at_last == [n + 1 for n in before]
        gc.collect()
        assert kept() == before


def test_a_lam_of_another_form_is_looked_at_again():
    f, xi, lam = problem(direct=True)
    s = jax.eval_shape(xi.start, lam, None)
    direct = lambda lam: _visible._read(f, xi, lam, None, s)[0]
    assert direct(lam) == [True] * 4
    assert direct({**lam, "more": jnp.asarray(1.0)}) == [True] * 5
    assert direct({**lam, "idle": jnp.asarray(1)}) == [True, False, True, True]
