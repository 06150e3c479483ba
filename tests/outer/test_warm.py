"""Warm starts of rules that solve a linear system: the single-loop methods, written out by hand."""

import jax
import jax.numpy as jnp
import lineax as lx
import numpy as np
import optax
import pytest
from jax.scipy.sparse.linalg import cg
from running import equal

import bilevax as bx

RNG = np.random.default_rng(3)
M = 5
HALVES = [(jnp.asarray(RNG.normal(size=(30, M))), jnp.asarray(RNG.normal(size=30))) for _ in "ab"]
S, SWAPPED = ({"train": HALVES[i], "val": HALVES[1 - i]} for i in (0, 1))
LAM = jnp.full(M, -1.0)
GAMMA, STEPS = 0.15, 9
KEY = jax.random.key(4)
ADAM = optax.adam(0.05)


def loss(w, data):
    return jnp.mean((data[0] @ w - data[1]) ** 2)


def g(w, lam, S):
    return loss(w, S["train"]) + jnp.sum(jax.nn.sigmoid(lam) * w**2)


def f(w, lam, S):
    return loss(w, S["val"]) + 0.01 * jnp.sum(lam**2)


def run(rule, T, *, steps=STEPS, S=S, **more):
    xi = bx.Descent(g, bx.constant(jnp.zeros(M)), optax.sgd(GAMMA))
    more = {"T": T, "steps": steps, "S": S, "optimizer": ADAM, "warm_start": True} | more
    return bx.minimize(f, xi, rule, LAM, **more)


def by_hand(solve, T, batches):
    """w from the last w, v from the last v, a step of Adam: the loops of the papers."""
    lam, state = LAM, ADAM.init(LAM)
    places = [(jnp.zeros(M), jnp.zeros(M)) for _ in batches[0]]
    for batch in batches:
        found = [_one(solve, T, lam, S, *place) for S, place in zip(batch, places, strict=True)]
        h = sum(h for h, _ in found) / len(batch)
        places = [place for _, place in found]
        with jax.numpy_dtype_promotion("standard"):
            update, state = ADAM.update(h, state, lam)
        lam = lam + update
    return lam


def _one(solve, T, lam, S, w, v):
    for _ in range(T):
        w = w - GAMMA * jax.grad(g)(w, lam, S)
    alpha, direct = jax.grad(f, (0, 1))(w, lam, S)
    v, ahead = solve(jax.hessian(g)(w, lam, S), alpha, v)
    return direct - jax.jacobian(jax.grad(g, 1))(w, lam, S) @ v, (w, ahead)


def series(K):
    """K steps of gradient descent on v H v / 2 - v alpha; a product ahead, as in SOBA."""

    def solve(H, alpha, ahead):
        v = ahead + GAMMA * alpha
        for _ in range(K - 1):
            v = v - GAMMA * (H @ v - alpha)
        return v, v - GAMMA * H @ v

    return solve


def conjugate(n):
    def solve(H, alpha, v):
        with jax.numpy_dtype_promotion("standard"):
            v = cg(lambda x: H @ x, alpha, v, tol=0.0, maxiter=n)[0]
        return v, v

    return solve


CG = lambda n: bx.Implicit(lx.CG(rtol=0, atol=0, max_steps=n))
CASES = {
    "SOBA": (bx.Neumann(1), series(1), 1),
    "AmIGO": (bx.Neumann(6), series(6), 3),
    "AmIGO-CG": (CG(2), conjugate(2), 3),
}


@pytest.mark.parametrize("name", CASES)
def test_the_linear_system_goes_on_where_it_was(name):
    rule, solve, T = CASES[name]
    want = by_hand(solve, T, [[S]] * STEPS)
    np.testing.assert_allclose(run(rule, T).lam, want, rtol=1e-9)
    cold = by_hand(lambda H, alpha, v: solve(H, alpha, 0 * v), T, [[S]] * STEPS)
    assert np.linalg.norm(want - cold) > 1e-3  # it makes a difference


def drawn(data, key):
    """A minibatch for g and one for f."""
    keys = dict(zip(sorted(data), jax.random.split(key), strict=True))
    rows = {name: jax.random.randint(k, (8,), 0, 30) for name, k in keys.items()}
    return {name: tuple(a[rows[name]] for a in pair) for name, pair in data.items()}


def test_minibatches_are_contexts():
    batches = [[drawn(S, jax.random.split(jax.random.fold_in(KEY, i), 1)[0])] for i in range(STEPS)]
    draw = jax.tree_util.Partial(drawn, S)
    got = run(bx.Neumann(1), 1, S=None, contexts=draw, key=KEY)
    np.testing.assert_allclose(got.lam, by_hand(series(1), 1, batches), rtol=1e-9)


@pytest.mark.parametrize("at_once", [1, 2])
def test_each_place_of_a_batch_has_its_own(at_once):
    got = run(CG(2), 3, S=None, contexts=[S, SWAPPED], batch=2, at_once=at_once)
    np.testing.assert_allclose(got.lam, by_hand(conjugate(2), 3, [[S, SWAPPED]] * STEPS), rtol=1e-9)


@pytest.mark.parametrize("rule", [bx.Neumann(2), CG(2)], ids=repr)
def test_a_resumed_run_has_the_same_bits(rule, tmp_path):
    whole = run(rule, 3)
    run(rule, 3, steps=4, checkpoint=tmp_path)
    resumed = run(rule, 3, checkpoint=tmp_path)
    assert equal((whole.lam, whole.history), (resumed.lam, resumed.history))


def test_one_step_of_each_finds_the_optimum_that_a_cold_series_misses():
    """Of training to the end; exact by `Implicit` there."""
    xi = bx.Descent(g, bx.constant(jnp.zeros(M)), optax.sgd(GAMMA))
    exact = bx.hypergradient(f, xi, bx.Implicit(lx.LU()), T=300)
    size = lambda lam: float(jnp.linalg.norm(exact(lam, S).h))
    warm = run(bx.Neumann(1), 1, steps=3000, optimizer=optax.sgd(0.5))
    cold = bx.minimize(
        f, xi, bx.Neumann(1), LAM, T=300, steps=300, S=S, optimizer=optax.sgd(0.5)
    )  # fmt: skip
    assert size(warm.lam) < 1e-6 < 1e-3 < size(cold.lam)


def test_fewer_iterations_once_it_is_near():
    steps = run(bx.Implicit(lx.CG(rtol=1e-4, atol=1e-4)), 5, steps=60).history["steps"]
    assert steps[0] == M and steps[-1] < 3


@pytest.mark.parametrize("asked", [{"correct": True}, {"audit": True}], ids=str)
def test_audits_have_no_exact_rule_for_the_end_of_training(asked):
    with pytest.raises(ValueError, match=r"Neumann\(K=2\) with the exact hypergradient of T steps"):
        run(bx.Neumann(2), 3, **asked)
