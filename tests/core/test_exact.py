"""All exact rules agree with plain differentiation, finite differences and each other."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from oracle import assert_close, exact, finite_difference, in_turn

import bilevax as bx
from bilevax import _tree as tree
from bilevax import problems

T = 3  # with segments of 2: a whole one and a rest

OPTIMIZERS = {
    "sgd": optax.sgd(0.2),
    "momentum": optax.sgd(0.1, momentum=0.8),
    "adam": optax.adam(0.1, eps_root=1e-8),
    "adamw": optax.adamw(0.1, eps_root=1e-8, weight_decay=0.05),
    "rmsprop": optax.rmsprop(0.05, eps=1e-4, momentum=0.5),
    "schedule": optax.sgd(optax.cosine_decay_schedule(0.3, T)),
    "chain": optax.chain(optax.clip_by_global_norm(0.5), optax.adam(0.1, eps_root=1e-8)),
}

PROBLEMS = {
    "quadratic": problems.quadratic,
    "ridge": problems.ridge,
    "logistic": problems.logistic,
    "reweighting": lambda T: problems.reweighting(n=12, T=T),
    "hyper_representation": lambda T: problems.hyper_representation(n=12, D=3, T=T),
}

EXACT = [
    bx.Reverse(),
    bx.Reverse(segment=1),
    bx.Reverse(segment=2),
    bx.Reverse(segment=100),
    bx.Reverse(policy=jax.checkpoint_policies.dots_saveable),
    bx.Reverse(segment=2, policy=jax.checkpoint_policies.everything_saveable),
    bx.Forward(),
    bx.Forward(chunk=4),
]

CROSSED = [bx.Reverse(), bx.Reverse(segment=2), bx.Forward(), bx.Forward(chunk=4)]

SAMPLES = {"whole": lambda S, t: S, "minibatch": in_turn(8)}

CASES = [
    (p, o, s)
    for p in PROBLEMS
    for o in OPTIMIZERS
    for s in SAMPLES
    if p != "ridge" and not (s == "minibatch" and p == "quadratic")
]
# Each optimizer, each problem with two or three of them, whole and in minibatches.
FEW = CASES[::6]
PRODUCT = [pytest.param(*c, marks=[] if c in FEW else pytest.mark.slow) for c in CASES]


@pytest.mark.parametrize("name, opt, sample", PRODUCT)
def test_exact_rules_agree(name, opt, sample):
    problem = PROBLEMS[name](T=T).with_inner(OPTIMIZERS[opt], SAMPLES[sample])
    want = exact(problem)
    hgs = [bx.hypergradient(problem.f, problem.xi, rule, T=T) for rule in CROSSED]
    for out in jax.jit(lambda lam, S: [hg(lam, S) for hg in hgs])(problem.lam, problem.S):
        assert_close(out.h, want)


@pytest.mark.parametrize("name", PROBLEMS)
def test_finite_differences_agree(name):
    problem = PROBLEMS[name](T=T).with_inner(optax.sgd(0.2, momentum=0.5))
    h = bx.hypergradient(problem.f, problem.xi, bx.Reverse(), T=T)(problem.lam, problem.S).h
    rng = np.random.default_rng(0)
    direction = jax.tree.map(lambda a: jnp.asarray(rng.normal(size=a.shape)), problem.lam)
    direction = tree.scale(1 / tree.norm(direction), direction)
    slope = finite_difference(problem, direction)
    assert abs(float(tree.dot(h, direction)) - slope) <= 1e-10 * float(tree.norm(h))


@pytest.mark.parametrize("make", [problems.quadratic, problems.toy, problems.counterexample])
@pytest.mark.parametrize("rule", EXACT, ids=repr)
def test_closed_form_after_T_steps(make, rule):
    p = make()
    h = bx.hypergradient(p.f, p.xi, rule, T=p.T)(p.lam, p.S).h
    assert_close(h, p.finite(p.lam, p.S))


def test_optimizer_settings_are_hyperparameters():
    """Learning rate, momentum and weight decay, all differentiated at once."""
    base = problems.logistic(T=T)
    lam = {
        "penalty": base.lam,
        "rate": jnp.asarray(0.1),
        "momentum": jnp.asarray(0.7),
        "decay": jnp.asarray(0.02),
    }
    opt = lambda lam: optax.chain(
        optax.add_decayed_weights(lam["decay"]),
        optax.sgd(lam["rate"], momentum=lam["momentum"]),
    )
    g = lambda w, lam, S: base.xi.g(w, lam["penalty"], S)
    xi = bx.Descent(g, base.xi.init, opt)
    p = problems.Problem("tuned", base.f, xi, lam, base.S, T)
    want = exact(p)
    assert all(abs(float(want[k])) > 1e-4 for k in ("rate", "momentum", "decay"))
    for rule in EXACT:
        assert_close(bx.hypergradient(p.f, xi, rule, T=T)(lam, p.S).h, want)


def test_initialisation_is_a_hyperparameter():
    """Xi_0(lam), seen through B_0 alone."""
    base = problems.logistic(T=T)
    lam = {"slope": 0.1 * jnp.ones(5), "offset": jnp.asarray(0.2)}
    g = lambda w, lam, S: base.xi.g(w, base.lam, S)
    xi = bx.Descent(g, lambda lam, S: lam, optax.sgd(0.1, momentum=0.9))
    p = problems.Problem("warm", base.f, xi, lam, base.S, T)
    want = exact(p)
    for rule in EXACT:
        assert_close(bx.hypergradient(p.f, xi, rule, T=T)(lam, p.S).h, want)


def test_value_and_parameters_are_those_of_the_plain_loop():
    p = problems.reweighting(T=T)
    out = bx.hypergradient(p.f, p.xi, bx.Reverse(K=2), T=T)(p.lam, p.S)
    advance = jax.jit(lambda s, t: p.xi.advance(s, p.lam, p.S, t))
    s = p.xi.start(p.lam, p.S)
    for t in range(T):
        s = advance(s, t)
    assert_close(out.w, s.w, 1e-14)
    assert_close(out.value, p.f(s.w, p.lam, p.S), 1e-14)
    assert out.report == {}
