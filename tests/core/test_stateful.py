"""Models whose forward pass changes something: every rule follows the state, or says so."""

import functools

import jax
import jax.numpy as jnp
import lineax as lx
import numpy as np
import optax
import pytest
from oracle import assert_close, exact, in_turn

import bilevax as bx
from bilevax import problems

T = 4  # with segments of 3: a whole one and a rest
rng = np.random.default_rng(0)
x, y = jnp.asarray(rng.normal(size=(20, 3))), jnp.asarray(rng.normal(size=20))
S = {"train": (x[:12], y[:12]), "val": (x[12:], y[12:])}
LAM = {"penalty": jnp.asarray([-1.0, -2.0, -1.5]), "momentum": jnp.asarray(0.8)}
START = bx.Stateful(
    {"in": jnp.asarray(rng.normal(size=(3, 2))), "out": 0.5 * jnp.ones(2)},
    {
        "mean": jnp.zeros(2),
        "ema": jnp.zeros((3, 2)),
        "count": jnp.asarray(0, jnp.int32),
        "key": jax.random.key(1),
    },
)


def g(model, lam, S):
    """Running statistics of a hidden layer, an average of weights, a key and a count."""
    w, state = model
    inputs, targets = S["train"]
    hidden = jnp.tanh(inputs @ w["in"])
    mean = lam["momentum"] * state["mean"] + (1 - lam["momentum"]) * jnp.mean(hidden, 0)
    out = (hidden - mean[None, :]) @ w["out"] / (1 + state["count"].astype(float))
    loss = jnp.mean((out - targets) ** 2) + jnp.sum(jnp.exp(lam["penalty"])[:, None] * w["in"] ** 2)
    ema = 0.5 * state["ema"] + 0.5 * w["in"]
    return loss, state | {"mean": mean, "ema": ema, "count": state["count"] + 1}


def f(model, lam, S):
    """At test time by the running mean and the average of the weights."""
    w, state = model
    hidden = jnp.tanh(S["val"][0] @ state["ema"])
    return jnp.mean(((hidden - state["mean"][None, :]) @ w["out"] - S["val"][1]) ** 2)


MOMENTUM = optax.sgd(0.1, momentum=0.5)


def problem(opt=MOMENTUM):
    xi = bx.Descent(g, bx.constant(START), opt, in_turn(8))
    return problems.Problem("stateful", f, xi, LAM, S, T)


@functools.cache
def wanted(opt):
    return exact(problem(opt))


EXACT = [
    bx.Reverse(),
    bx.Reverse(segment=3),
    bx.Reverse(policy=jax.checkpoint_policies.dots_saveable),
    bx.Forward(),
    bx.Forward(chunk=2),
]


@pytest.mark.parametrize(
    "opt", [MOMENTUM, optax.adam(0.1, eps_root=1e-8)], ids=["momentum", "adam"]
)
def test_exact_rules_follow_the_state(opt):
    p = problem(opt)
    want = wanted(opt)
    assert abs(float(want["momentum"])) > 1e-3  # reached through the state
    hgs = [bx.hypergradient(f, p.xi, rule, T=T) for rule in EXACT]
    for out in jax.jit(lambda lam, S: [hg(lam, S) for hg in hgs])(LAM, S):
        assert_close(out.h, want)
        assert isinstance(out.w, bx.Stateful) and int(out.w.state["count"]) == T


def test_solve_follows_the_state():
    p = problem()
    loss = lambda lam: f(bx.solve(p.xi, lam, S, T=T), lam, S)
    assert_close(jax.jit(jax.grad(loss))(LAM), wanted(MOMENTUM))


@pytest.mark.parametrize("K", [1, 3])
def test_truncation_follows_the_state(K):
    """`jax.grad` of the plain loop, cut before its last K steps."""
    p = problem()
    smooth = lambda a: jnp.issubdtype(a.dtype, jnp.floating)
    stop = lambda a: jax.lax.stop_gradient(a) if smooth(a) else a

    def loss(lam):
        s = p.xi.start(lam, S)
        for t in range(T):
            if t == T - K:
                s = jax.tree.map(stop, s)
            s = p.xi.advance(s, lam, S, jnp.asarray(t, jnp.int32))
        return f(p.xi.read(s), lam, S)

    want = jax.jit(jax.grad(loss))(LAM)
    for rule in (bx.Reverse(K=K), bx.Reverse(K=K, segment=2)):
        assert_close(bx.hypergradient(f, p.xi, rule, T=T)(LAM, S).h, want)


def settled(model, lam, S):
    """Strictly convex in w, with a running mean that the gradient depends on."""
    w, state = model
    mean = 0.5 * state["mean"] + 0.5 * jnp.tanh(w)
    loss = jnp.sum((w - lam) ** 2) / 2 + 0.3 * jnp.sum(jax.lax.stop_gradient(mean) * w**2) / 2
    return loss, {"mean": mean, "count": state["count"] + 1}


SETTLED = bx.Stateful(jnp.zeros(3), {"mean": jnp.zeros(3), "count": jnp.asarray(0)})


def at_rest(rule, T=300):
    xi = bx.Descent(settled, bx.constant(SETTLED), optax.sgd(0.3))
    f = lambda model, lam, S: jnp.sum(model.w * model.state["mean"])
    return bx.hypergradient(f, xi, rule, T=T)(jnp.asarray([0.5, -1.0, 2.0]))


def test_implicit_rules_follow_the_state_to_where_it_is_at_rest():
    want = at_rest(bx.Reverse()).h
    out = at_rest(bx.Implicit(lx.GMRES(rtol=1e-12, atol=1e-12)))
    assert_close(out.h, want, 1e-9)
    assert float(out.report["residual"]) < 1e-12
    assert_close(at_rest(bx.Neumann(K=300)).h, want, 1e-9)
    assert_close(at_rest(bx.Krylov(), T=100).h, want, 1e-6)
    assert_close(at_rest(bx.AdaptiveReverse(1e-8, 200)).h, want, 1e-6)
    assert_close(at_rest(bx.AdaptiveKrylov(1e-6), T=100).h, want, 1e-4)


def test_conjugate_gradients_say_that_a_state_is_not_symmetric():
    with pytest.raises(ValueError, match="without running statistics.*GMRES"):
        at_rest(bx.Implicit())


def test_a_state_of_counts_and_keys_leaves_the_hessian_symmetric():
    g = lambda m, lam, S: (jnp.sum((m.w - lam) ** 2) / 2, m.state + 1)
    start = bx.constant(bx.Stateful(jnp.zeros(2), jnp.asarray(0)))
    xi = bx.Descent(g, start, optax.sgd(0.5))
    out = bx.hypergradient(lambda m, lam, S: jnp.sum(m.w), xi, bx.Implicit(), T=40)(jnp.ones(2))
    assert_close(out.h, jnp.ones(2), 1e-6)


def test_diagnose_minimize_and_warm_starts_follow_the_state(tmp_path):
    p = problem()
    assert bx.diagnose(f, p.xi, LAM, S, T=T, lanczos=0).error[-1] < 1e-12
    assert bx.check_gradient(f, p.xi, bx.Reverse(), LAM, S, T=T, key=jax.random.key(0)).agrees
    run = lambda steps, **kw: bx.minimize(
        f, p.xi, bx.Reverse(K=2), LAM, T=T, steps=steps, S=S, optimizer=optax.adam(0.05), **kw
    )
    run(3, warm_start=True, checkpoint=tmp_path)
    resumed = run(6, warm_start=True, checkpoint=tmp_path)
    assert_close(resumed.lam, run(6, warm_start=True).lam, 0)


def test_what_g_must_return():
    make = lambda g, start: bx.hypergradient(
        f, bx.Descent(g, bx.constant(start), optax.sgd(0.1)), bx.Reverse(), T=2
    )
    with pytest.raises(TypeError, match=r"unless init returns bx.Stateful\(w, state\)"):
        make(lambda w, lam, S: (jnp.sum(w["in"] ** 2), 0), START.w)(LAM, S)
    with pytest.raises(TypeError, match="must return a pair"):
        make(lambda m, lam, S: g(m, lam, S)[0], START)(LAM, S)
    with pytest.raises(ValueError, match="step changed the structure of the state"):
        make(lambda m, lam, S: (g(m, lam, S)[0], {}), START)(LAM, S)
    with pytest.raises(ValueError, match=r"step changed state.w.state\['count'\] from int32"):
        make(lambda m, lam, S: (g(m, lam, S)[0], m.state | {"count": 0.5}), START)(LAM, S)
