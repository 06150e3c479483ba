"""Mixed mode gives the products of reverse over reverse, with less memory, or says why not."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from benchmarks import mixed as transformer
from jax import lax
from oracle import assert_close, in_turn

import bilevax as bx
from bilevax import _tree as tree
from bilevax import problems
from bilevax._loop import unroll
from bilevax.diagnostics._symmetry import asymmetry
from bilevax.testing import check_rule

mixed = lambda xi: dataclasses.replace(xi, symmetric=True)

RATE = 0.05
OPTIMIZERS = {  # without radam, whose first steps have no derivative in any mode: nan
    "sgd": optax.sgd(RATE),
    "nesterov": optax.sgd(RATE, momentum=0.9, nesterov=True),
    "noisy_sgd": optax.noisy_sgd(RATE, key=jax.random.key(0)),
    "sign_sgd": optax.sign_sgd(RATE),
    "adam": optax.adam(RATE, eps_root=1e-8),
    "adamw": optax.adamw(RATE, eps_root=1e-8, weight_decay=0.1),
    "adamax": optax.adamax(RATE),
    "amsgrad": optax.amsgrad(RATE, eps_root=1e-8),
    "nadamw": optax.nadamw(RATE, eps_root=1e-8),
    "adabelief": optax.adabelief(RATE, eps_root=1e-8),
    "adan": optax.adan(RATE, eps_root=1e-8),
    "adagrad": optax.adagrad(RATE),
    "adadelta": optax.adadelta(RATE),
    "adafactor": optax.adafactor(RATE),
    "lamb": optax.lamb(RATE, eps_root=1e-8),
    "lars": optax.lars(RATE),
    "lion": optax.lion(RATE),
    "novograd": optax.novograd(RATE),
    "rmsprop": optax.rmsprop(RATE, eps=1e-4, momentum=0.5),
    "rprop": optax.rprop(RATE),
    "sm3": optax.sm3(RATE),
    "yogi": optax.yogi(RATE),
    "fromage": optax.fromage(RATE),
    "optimistic": optax.optimistic_gradient_descent(RATE),
    "polyak": optax.polyak_sgd(1.0),  # reads the value of g
    "lbfgs": optax.lbfgs(RATE, linesearch=None),  # a line search has no reverse mode at all
    "sam": optax.contrib.sam(optax.sgd(RATE), optax.sgd(0.01), opaque_mode=True),
    "dadapt": optax.contrib.dadapt_adamw(RATE),
    "prodigy": optax.contrib.prodigy(RATE),
    "schedule_free": optax.contrib.schedule_free_adamw(RATE, warmup_steps=3),
    "muon": optax.contrib.muon(RATE),
    "accumulated": optax.MultiSteps(optax.adam(RATE, eps_root=1e-8), 2),
    "clipped": optax.chain(optax.clip_by_global_norm(0.5), optax.adam(RATE, eps_root=1e-8)),
    "plateau": optax.chain(optax.sgd(RATE), optax.contrib.reduce_on_plateau()),
}
OFTEN = ("sgd", "adam", "polyak", "sam", "accumulated", "adafactor")
NAMES = [pytest.param(n, marks=[] if n in OFTEN else pytest.mark.slow) for n in OPTIMIZERS]


def network(opt, sample=None):
    """Rates, weights of rows and a penalty in lam; two layers, minibatches."""
    p = problems.reweighting(n=12, T=6)
    S = p.S | {"x": jnp.asarray(np.random.default_rng(0).normal(size=(12, 3)))}

    def g(w, lam, S):
        out = jnp.tanh(S["x"] @ w["a"]) @ w["b"]
        rows = jax.nn.sigmoid(lam["rows"]) * (out - jnp.sin(S["x"][:, 0])) ** 2
        return jnp.mean(rows) + jnp.exp(lam["penalty"]) * tree.dot(w, w)

    w = {"a": 0.3 * jnp.cos(jnp.arange(12.0)).reshape(3, 4), "b": 0.5 * jnp.sin(jnp.arange(4.0))}
    lam = {"rows": jnp.linspace(-1, 1, 12), "penalty": jnp.asarray(-2.0), "rate": jnp.asarray(0.9)}
    opt = opt.gradient_transformation() if isinstance(opt, optax.MultiSteps) else opt
    tuned = lambda lam: optax.chain(opt, optax.scale(lam["rate"]))
    xi = bx.Descent(g, bx.constant(w), tuned, sample or (lambda S, t: S))
    return xi, lam, S


def both(xi, lam, S, t=3, pull="advance_vjp"):
    """The product of a step with random cotangents, by reverse and by mixed mode."""

    @jax.jit
    def products(lam, S):
        s = unroll(xi, lam, S, xi.start(lam, S), 0, t)
        alpha = tree.normal(jax.random.key(1), tree.inexact(s))
        return [getattr(x, pull)(s, lam, S, t)(alpha) for x in (xi, mixed(xi))]

    return products(lam, S)


@pytest.mark.parametrize("name", NAMES)
def test_every_optimizer(name):
    xi, lam, S = network(OPTIMIZERS[name])
    if name == "sam":  # calls the gradient of g itself, which a chain does not pass on
        xi = dataclasses.replace(xi, opt=OPTIMIZERS[name])
    want, got = both(xi, lam, S)
    assert float(tree.norm(want[0])) > 0
    assert_close(got, want)


RULES = [
    bx.Reverse(),
    bx.Reverse(K=3, segment=2),
    bx.Reverse(segment=(4, 2)),
    bx.Reverse(policy=jax.checkpoint_policies.dots_saveable),
    bx.Forward(),
    bx.AdaptiveReverse(0.5, 4),
    bx.Neumann(3),
    bx.Implicit(),
]
SLOW = [bx.Krylov(2, 3), bx.AdaptiveKrylov(0.1)]


@pytest.mark.filterwarnings("ignore::bilevax.ToleranceWarning")
@pytest.mark.parametrize(
    "rule", [*RULES, *(pytest.param(r, marks=pytest.mark.slow) for r in SLOW)], ids=repr
)
def test_every_rule(rule):
    p = problems.logistic(n=10, D=3, T=8).with_inner(optax.sgd(0.2, momentum=0.3))
    h = lambda xi: bx.hypergradient(p.f, xi, rule, T=8)(p.lam, p.S).h
    assert_close(h(mixed(p.xi)), h(p.xi))


def test_minibatches_and_the_whole_context():
    p = problems.reweighting(n=12, T=6).with_inner(optax.adam(0.1, eps_root=1e-8), in_turn(8))
    for pull in ("advance_vjp", "settle_vjp"):
        want, got = both(p.xi, p.lam, p.S, pull=pull)
        assert_close(got, want)


def moving(model, lam, S):
    """A model with an average, a count and a key, which g uses and changes."""
    w, (mean, count, key) = model
    loss = jnp.sum(jnp.cos(w - mean) * lam) + 0.1 * jnp.sum(mean**2 * w)
    return loss, (0.9 * mean + 0.1 * jnp.sin(w * lam), count + 1, key)


def test_models_with_a_state():
    state = jnp.full(3, 0.2), jnp.asarray(0), jax.random.key(0)
    start = bx.Stateful(jnp.asarray([0.3, -0.4, 0.5]), state)
    for opt in (optax.adam(0.1, eps_root=1e-8), optax.polyak_sgd(1.0)):
        want, got = both(
            bx.Descent(moving, bx.constant(start), opt), jnp.asarray([1.0, 0.5, 2.0]), None
        )
        assert_close(got, want)


def test_prepared():
    g = lambda w, mu, S: jnp.sum(jnp.cosh(w - mu) * S)
    xi = bx.Descent(g, bx.constant(jnp.zeros(3)), optax.adam(0.1, eps_root=1e-8))
    by = lambda xi: bx.Prepared(lambda lam, S: jnp.tanh(lam) * S, xi)
    lam, S = jnp.asarray([0.3, 0.2, -0.5]), jnp.asarray([1.0, 2.0, 3.0])
    f = lambda w, lam, S: jnp.sum(jnp.sin(w))
    for rule in (bx.Reverse(), bx.Implicit()):
        h = lambda xi, rule=rule: bx.hypergradient(f, by(xi), rule, T=4)(lam, S).h
        assert_close(h(mixed(xi)), h(xi))
    alpha = tree.inexact(xi.start(lam, S))
    ones = optax.tree.ones_like(alpha)
    pull = lambda xi: by(xi).advance_vjp(xi.start(lam, S), lam, S, 0)(ones)
    assert_close(*jax.jit(lambda: (pull(mixed(xi)), pull(xi)))())


@pytest.mark.parametrize("dtype", [jnp.float16, jnp.bfloat16])
def test_mixed_dtypes(dtype):
    """Parameters of 16 bits, lam and a penalty of 32."""
    g = lambda w, lam, S: (
        jnp.sum(jnp.cosh(w["a"].astype(jnp.float32) - lam)) + jnp.sum(w["b"] ** 2) * jnp.sum(lam)
    )
    w = {"a": jnp.asarray([0.5, 0.25], dtype), "b": jnp.asarray([0.5], jnp.float32)}
    xi = bx.Descent(g, bx.constant(w), optax.sgd(0.1, momentum=0.5))
    want, got = both(xi, jnp.asarray([0.1, 0.2], jnp.float32), None)
    same = lambda a, b: (
        a.dtype == b.dtype
        and np.allclose(
            a.astype(jnp.float32), b.astype(jnp.float32), rtol=5 * float(jnp.finfo(dtype).eps)
        )
    )
    assert jax.tree.all(jax.tree.map(same, got, want))


@pytest.mark.slow
def test_second_derivatives_and_batches():
    p = problems.logistic(n=10, D=3, T=4)
    for rule in (bx.Reverse(), bx.Reverse(segment=(3, 2))):
        outer = lambda lam, xi, rule=rule: p.f(bx.solve(xi, lam, p.S, T=4, rule=rule), lam, p.S)
        want = jax.hessian(outer)(p.lam, p.xi)
        assert_close(jax.hessian(outer)(p.lam, mixed(p.xi)), want)
        assert_close(jax.jacrev(jax.grad(outer))(p.lam, mixed(p.xi)), want)
    hg = bx.hypergradient(p.f, mixed(p.xi), bx.Reverse(segment=(3, 2)), T=4)
    lams = jnp.stack([p.lam, 0.5 * p.lam])
    batch = jax.vmap(hg, (0, None))(lams, p.S)
    assert_close(batch.h[1], hg(0.5 * p.lam, p.S).h)


@pytest.mark.slow
def test_a_rule_that_is_checked():
    check_rule(bx.Reverse(segment=(4, 2)), exact=True)


def bytes_of(layers, width, symmetric, rule=bx.Reverse(K=2)):
    """Of the transformer of benchmarks/mixed.py: scanned, with jax.checkpoint on a block."""
    w = jax.eval_shape(lambda: transformer.init(layers, width))
    tokens = jax.ShapeDtypeStruct((4, 129), jnp.int32)  # activations outweigh parameters

    def h(w, lam, tokens):
        xi = bx.Descent(transformer.g, bx.constant(w), transformer.OPT, symmetric=symmetric)
        S = {"train": tokens, "valid": tokens}
        return bx.hypergradient(transformer.f, xi, rule, T=3)(lam, S).h

    program = jax.jit(h).lower(w, jax.ShapeDtypeStruct((4,), jnp.float32), tokens).compile()
    return program.memory_analysis().temp_size_in_bytes


@pytest.mark.slow
def test_a_transformer_takes_less_than_half_of_the_memory():
    """Of what a layer adds: the states that `Reverse` keeps are in both."""
    deep, shallow = 16, 4
    with jax.enable_x64(False):
        before, after = (
            bytes_of(deep, 32, symmetric) - bytes_of(shallow, 32, symmetric)
            for symmetric in (False, True)
        )
    assert after < 0.45 * before


@jax.custom_vjp
def rounded(x):
    return jnp.round(x)


rounded.defvjp(lambda x: (jnp.round(x), None), lambda _, c: (c,))  # straight through


@jax.custom_vjp
def twice(x):
    return rounded(x) * 2


twice.defvjp(lambda x: (rounded(x) * 2, None), lambda _, c: (2 * c,))

target = lambda w, lam: lax.stop_gradient(lam + 0.9 * jnp.max(jnp.sin(w[::-1] * w[1])))
CLAIMS = {
    "plain": (lambda w, lam, S: jnp.sum(jnp.exp(lam) * jnp.cosh(w)), True),
    "softmax": (lambda w, lam, S: -jnp.sum(lam * jax.nn.log_softmax(w * w)), True),
    "TD": (lambda w, lam, S: jnp.sum(jnp.exp(lam) * (w * w[0] - target(w, lam)) ** 2), True),
    "stop": (lambda w, lam, S: jnp.sum(lam * (w + lax.stop_gradient(jnp.round(w) - w)) ** 2), True),
    "straight": (lambda w, lam, S: jnp.sum(jnp.exp(lam) * (rounded(3 * w) - w) ** 2), False),
}
W, LAM = jnp.asarray([0.3, -0.7, 0.2]), jnp.asarray([0.5, 0.4, 0.1])
F = lambda w, lam, S: jnp.sum(w**2)


@pytest.mark.parametrize("name", CLAIMS)
def test_a_claim_is_put_to_the_test(name):
    """Whatever the step size is. JAX takes `stop_gradient` for a constant in every derivative, so
    a target that is made with it is symmetric."""
    g, holds = CLAIMS[name]
    xi = bx.Descent(g, bx.constant(W), optax.sgd(1e-8), symmetric=True)
    found = asymmetry(xi, LAM, None, 3)
    assert found is None if holds else found > 0.1
    assert asymmetry(dataclasses.replace(xi, symmetric=False), LAM, None, 3) is None


def test_a_false_claim_has_a_sentence():
    xi = bx.Descent(CLAIMS["straight"][0], bx.constant(W), optax.sgd(0.1), symmetric=True)
    d = bx.diagnose(F, xi, LAM, T=3, lanczos=0)
    assert d.advice[0].startswith("symmetric=True is wrong here: forward over reverse and")
    found = bx.check_gradient(F, xi, bx.Reverse(), LAM, T=3, key=jax.random.key(0))
    assert not found.agrees and str(found).endswith("leave symmetric out.")


def test_where_forward_mode_is_impossible_the_function_is_named():
    g = lambda w, lam, S: jnp.sum(lam * twice(w) ** 2)
    xi = bx.Descent(g, bx.constant(W), optax.sgd(0.1), symmetric=True)
    with pytest.raises(TypeError, match=r"custom_vjp of rounded at .*: leave symmetric out"):
        bx.hypergradient(F, xi, bx.Reverse(), T=3)(LAM)
    with pytest.raises(TypeError, match=r"symmetric must be True or False, got the int 1"):
        bx.Descent(g, bx.constant(W), optax.sgd(0.1), symmetric=1)
