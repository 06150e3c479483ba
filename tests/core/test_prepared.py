"""What depends on lam alone, out of the loop: the same numbers, fewer operations."""

import jax
import jax.numpy as jnp
import lineax as lx
import numpy as np
import optax
import pytest

import bilevax as bx

LAM = {"layer": jax.random.normal(jax.random.key(0), (5, 3), float), "penalty": jnp.asarray(-1.0)}
S = {"x": jax.random.normal(jax.random.key(1), (8, 5), float), "y": jnp.arange(8.0)}


def features(lam, S):
    return {"z": jnp.tanh(S["x"] @ lam["layer"]), "penalty": lam["penalty"], "layer": lam["layer"]}


def g(w, mu, S):
    return jnp.mean((mu["z"] @ w - S["y"]) ** 2) + jnp.exp(mu["penalty"]) * jnp.sum(w**2)


def f(w, lam, S):
    return jnp.sum((w - jnp.sum(lam["layer"], 0)) ** 2)


START = lambda mu, S: mu["layer"][0]
INNER = bx.Descent(g, START, optax.sgd(0.1, momentum=0.5))
PREPARED = bx.Prepared(features, INNER)
PLAIN = bx.Descent(
    lambda w, lam, S: g(w, features(lam, S), S),
    lambda lam, S: START(features(lam, S), S),
    optax.sgd(0.1, momentum=0.5),
)
RULES = [
    bx.Reverse(),
    bx.Reverse(K=3),
    bx.Reverse(segment=4),
    bx.Forward(),
    bx.Implicit(lx.CG(1e-12, 1e-12)),
    bx.Neumann(5),
]


@pytest.mark.parametrize("rule", RULES, ids=repr)
def test_same_numbers(rule):
    found, wanted = (bx.hypergradient(f, xi, rule, T=12)(LAM, S) for xi in (PREPARED, PLAIN))
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-12), found, wanted
    )


def test_solve_differentiates_through_it():
    loss = lambda lam, xi: jnp.sum(bx.solve(xi, lam, S, T=9) ** 3)
    found, wanted = (jax.grad(loss)(LAM, xi) for xi in (PREPARED, PLAIN))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-10), found, wanted)


def count(jaxpr, name):
    """How often a primitive is executed, loops counted by their length."""
    total = 0
    for eqn in jaxpr.eqns:
        inner = [p for p in jax.tree.leaves(list(eqn.params.values())) if hasattr(p, "jaxpr")]
        times = eqn.params.get("length", 1)
        total += (eqn.primitive.name == name) + times * sum(count(p.jaxpr, name) for p in inner)
    return total


def test_prepared_once():
    """tanh is taken once, not in each of 12 steps and again on the way back."""
    run = lambda xi: jax.make_jaxpr(bx.hypergradient(f, xi, bx.Reverse(), T=12))(LAM, S)
    assert count(run(PREPARED).jaxpr, "tanh") <= 4  # and where visibility is decided
    assert count(run(PLAIN).jaxpr, "tanh") >= 24


def test_in_the_outer_loop():
    """Warm starts included."""
    for warm in (False, True):
        lams = [
            bx.minimize(
                f, xi, bx.Reverse(K=5), LAM, T=12, steps=4, S=S, optimizer=optax.sgd(1e-3),
                warm_start=warm, progress=False,
            ).lam
            for xi in (PREPARED, PLAIN)
        ]  # fmt: skip
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-10), *lams)


def test_wrong_use():
    with pytest.raises(TypeError, match="prepare must be a function"):
        bx.Prepared(LAM, INNER)
    with pytest.raises(TypeError, match="xi must be an inner algorithm"):
        bx.Prepared(features, features)
    with pytest.raises(TypeError, match=r"prepare\(lam, S\)"):
        bx.solve(bx.Prepared(lambda lam, S: jnp.arange(3), INNER), LAM, S, T=2)
