"""Every sentence about bad input, by its text."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import bilevax as bx
from bilevax._errors import check

g = lambda w, lam, S: jnp.sum((w - lam) ** 2)
f = lambda w, lam, S: jnp.sum(w**2)
ZERO = bx.constant(jnp.zeros(2))
SGD = optax.sgd(0.1)
LAM = jnp.ones(2)


def run(f=f, g=g, init=ZERO, opt=SGD, lam=LAM, rule=bx.Reverse(), T=3, **more):
    return bx.hypergradient(f, bx.Descent(g, init, opt, **more), rule, T=T)(lam)


def run_with(S):
    return bx.hypergradient(f, bx.Descent(g, ZERO, SGD), bx.Reverse(), T=3)(LAM, S)


def run_dynamics(step, init=lambda lam, S: jnp.zeros(2), **more):
    return bx.hypergradient(f, bx.Dynamics(init, step, **more), bx.Reverse(), T=3)(LAM)


bad_size = [
    (lambda: bx.Reverse(K=0), ValueError, "K must be at least 1, got 0: give the number"),
    (lambda: bx.Reverse(K=-3), ValueError, "K must be at least 1, got -3"),
    (lambda: bx.Reverse(K=2.5), TypeError, "K must be a Python int, got 2.5"),
    (lambda: bx.Reverse(K=True), TypeError, "K must be a Python int, got True"),
    (lambda: bx.Reverse(segment=0), ValueError, "segment must be at least 1, got 0"),
    (lambda: bx.Reverse(segment=()), ValueError, r"segment must have a level.*got \(\): give the"),
    (lambda: bx.Reverse(segment=(4, 0)), ValueError, "segment must be at least 1, got 0"),
    (lambda: bx.Reverse(segment=(4, 4)), ValueError, r"shorter segments.*got \(4, 4\): give the"),
    (lambda: bx.Reverse(segment=(4, 12)), ValueError, "give the outermost first, as in"),
    (lambda: bx.Reverse(segment=[9, 3]), TypeError, r"got \[9, 3\]: give the steps.*\(100, 10\)"),
    (lambda: bx.Reverse(policy=True), TypeError, "policy must be .*jax.checkpoint_policies"),
    (lambda: bx.Neumann(K=0), ValueError, "K must be at least 1, got 0: give the number"),
    (lambda: bx.Forward(chunk=0), ValueError, "chunk must be at least 1, got 0"),
    (lambda: run(T=0), ValueError, "T must be at least 1, got 0: give the number of inner"),
    (lambda: run(T=2**31), ValueError, "T must be less than 2\\*\\*31, got 2147483648: JAX counts"),
    (lambda: run(T=10.0), TypeError, "T must be a Python int, got 10.0"),
    (
        lambda: run(rule=bx.Reverse(K=4), T=3),
        ValueError,
        r"Reverse\(K=4\) looks K = 4 steps back, but the inner loop has only T = 3: lower K",
    ),
]

bad_kind = [
    (
        lambda: run(f=3),
        TypeError,
        r"f must be a function \(w, lam, S\) -> scalar, got the int",
    ),
    (lambda: run(g=None), TypeError, r"g must be a function \(w, lam, S\) -> scalar"),
    (
        lambda: run(init=jnp.zeros(2)),
        TypeError,
        r"init must be a function \(lam, S\) -> w_0, .*for a fixed start use bx.constant",
    ),
    (
        lambda: run(opt=0.1),
        TypeError,
        "opt must be a function lam -> optimizer, or an optax",
    ),
    (lambda: run(opt=lambda lam: 0.1), TypeError, r"opt\(lam\) must be an optax optimizer"),
    (lambda: run(sample=1), TypeError, r"sample must be a function \(S, t\) -> S_t"),
    (
        lambda: run(rule=bx.Reverse),
        TypeError,
        r"rule must be a rule.*the class Reverse itself",
    ),
    (lambda: run(rule="reverse"), TypeError, "rule must be a rule, as in bx.Reverse"),
    (
        lambda: bx.hypergradient(f, g, bx.Reverse(), T=3),
        TypeError,
        r"xi must be an inner algorithm, as in bx.Descent\(g, init, opt\)",
    ),
    (lambda: bx.solve(g, LAM, T=3), TypeError, "xi must be an inner algorithm"),
    (lambda: bx.Implicit("cg"), TypeError, "solver must be a lineax solver"),
    (lambda: bx.citation("Reverse"), TypeError, "rule must be a rule"),
    (lambda: bx.Dynamics(1, g), TypeError, r"init must be a function \(lam, S\) -> state"),
    (lambda: bx.Dynamics(ZERO, 1), TypeError, r"step must be a function \(state, lam, S, t\)"),
    (
        lambda: bx.Dynamics(ZERO, lambda s, lam, S, t: s, 1),
        TypeError,
        "params must be a function state -> w",
    ),
]

bad_leaf = [
    (
        lambda: run(lam=jnp.arange(2)),
        TypeError,
        "lam must be a floating array, got dtype int",
    ),
    (
        lambda: run(lam={"a": [LAM, 0.5]}),
        TypeError,
        r"lam\['a'\]\[1\] is the Python float 0.5",
    ),
    (
        lambda: run(lam={"a": "x"}),
        TypeError,
        r"lam\['a'\] must be a floating array, got the str",
    ),
    (
        lambda: run(lam=jnp.ones(2, complex)),
        TypeError,
        "lam must be a floating array, got dtype comp",
    ),
    (
        lambda: run(lam=np.array([True])),
        TypeError,
        "lam must be a floating array, got dtype bool",
    ),
    (lambda: run(lam=None), TypeError, "lam is None: give the hyperparameters, a pytree"),
    (
        lambda: run_with({"name": "digits"}),
        TypeError,
        r"S\['name'\] must be an array of numbers, got the str 'digits': turn text into integers",
    ),
    (
        lambda: run_with((LAM, np.array(["a", "b"]))),
        TypeError,
        r"S\[1\] must be an array of numbers, got an array of <U1",
    ),
    (lambda: run_with({"f": jnp.tanh}), TypeError, r"S\['f'\] must be .* value of type PjitFun"),
    (
        lambda: run(f=lambda w, lam: 0.0),
        TypeError,
        r"f must be a function \(w, lam, S\) -> scalar, got f\(w, lam\): let it take these",
    ),
    (lambda: run(g=lambda w: 0.0), TypeError, r"g must be a function .*, got g\(w\)"),
    (lambda: run(init=lambda: LAM), TypeError, r"init must be a function .*, got init\(\)"),
    (lambda: run(sample=lambda S: S), TypeError, r"sample must be .*, got sample\(S\)"),
    (
        lambda: run(opt=optax.adam, g=lambda w, lam, S: jnp.sum(w) * lam[2], lam=jnp.ones(3)),
        TypeError,
        "such as optax.adam, call it",
    ),
    (
        lambda: run(init=lambda lam, S: {"w": jax.nn.relu}),
        TypeError,
        r"w\['w'\] must be a floating array.*split it with equinox.partition",
    ),
    (
        lambda: run(init=bx.constant(jnp.arange(2))),
        TypeError,
        "w must be a floating array, got",
    ),
    (lambda: run(init=lambda lam, S: 1.0), TypeError, "w is the Python float 1.0"),
    (
        lambda: run_dynamics(lambda s, lam, S, t: s, init=lambda lam, S: jnp.arange(2)),
        TypeError,
        "w must be a floating array, got dtype int",
    ),
    (
        lambda: run_dynamics(lambda s, lam, S, t: s, init=lambda lam, S: (LAM, "name")),
        TypeError,
        r"state\[1\] must be an array, got the str 'name'",
    ),
]

bad_output = [
    (
        lambda: run(f=lambda w, lam, S: w),
        TypeError,
        r"f\(w, lam, S\) must return a scalar, got",
    ),
    (
        lambda: run(g=lambda w, lam, S: w),
        TypeError,
        r"g\(w, lam, S\) must return a scalar, got",
    ),
    (
        lambda: run(f=lambda w, lam, S: (jnp.sum(w), 1)),
        TypeError,
        "must return a scalar, got a value of type tuple: reduce it",
    ),
    (
        lambda: run(f=lambda w, lam, S: jnp.argmax(w)),
        TypeError,
        "must return a floating scalar, got dtype int64: a count or an accuracy",
    ),
    (
        lambda: run_dynamics(lambda s, lam, S, t: (s, s)),
        ValueError,
        "step changed the structure of the state from",
    ),
    (
        lambda: run_dynamics(lambda s, lam, S, t: jnp.zeros(3)),
        ValueError,
        r"step changed state from float64\[2\] to float64\[3\]: keep shape and dtype",
    ),
    (
        lambda: run_dynamics(lambda s, lam, S, t: s.astype(jnp.float32)),
        ValueError,
        r"step changed state from float64\[2\] to float32\[2\]",
    ),
]


@pytest.mark.parametrize("act, kind, text", bad_size + bad_kind + bad_leaf + bad_output)
def test_bad_input_gets_one_clear_sentence(act, kind, text):
    with pytest.raises(kind, match=text):
        act()


@pytest.mark.parametrize(
    "rule", [bx.Reverse(), bx.Reverse(K=2), bx.Forward(), bx.Neumann(K=2)], ids=repr
)
def test_a_diverging_inner_loop_is_reported(rule):
    with pytest.raises(
        Exception,
        match=r"the inner loop diverged: w_T is not finite after "
        r"T = 3000 steps.*rate below 2",
    ):
        jax.block_until_ready(run(opt=optax.sgd(1.5), rule=rule, T=3000))
    xi = bx.Descent(g, ZERO, optax.sgd(1.5))
    with pytest.raises(Exception, match="the inner loop diverged"):
        jax.block_until_ready(bx.solve(xi, LAM, T=3000, rule=rule))


def test_data_that_are_not_finite_are_named_first():
    read = lambda w, lam, S: jnp.sum((w - lam * S["x"]) ** 2)
    hg = bx.hypergradient(f, bx.Descent(read, ZERO, SGD), bx.Reverse(), T=3)
    with pytest.raises(FloatingPointError, match=r"^S\['x'\] is not finite: the inner loop div"):
        hg(LAM, {"x": jnp.asarray([1.0, np.nan]), "n": 3})
    with pytest.raises(FloatingPointError, match=r"^lam, S\['x'\] are not finite: the inner"):
        hg(LAM * np.inf, {"x": jnp.asarray([1.0, np.inf])})


def test_adam_at_a_zero_gradient_is_reported():
    """The derivative of sqrt(v) at 0 is infinite: nan, were it not for eps_root."""
    start = lambda lam, S: lam  # g is stationary at its start
    objective = lambda w, lam, S: jnp.sum((w - lam) ** 2)
    with pytest.raises(Exception, match="not finite although w_T and f are.*eps_root"):
        jax.block_until_ready(run(g=objective, init=start, opt=optax.adam(0.1)))
    outer = lambda lam: f(
        bx.solve(bx.Descent(objective, start, optax.adam(0.1)), lam, T=3), lam, None
    )
    with pytest.raises(Exception, match="eps_root"):
        jax.block_until_ready(jax.grad(outer)(LAM))
    out = run(g=objective, init=start, opt=optax.adam(0.1, eps_root=1e-8))
    assert np.all(np.isfinite(out.h))


def test_an_infinite_objective_is_reported():
    with pytest.raises(Exception, match=r"f\(w_T, lam, S\) is not finite although w_T is"):
        jax.block_until_ready(run(f=lambda w, lam, S: jnp.sum(w) / jnp.sum(lam * 0)))


def test_errors_reach_through_jit_and_vmap():
    hg = bx.hypergradient(f, bx.Descent(g, ZERO, optax.sgd(1.5)), bx.Reverse(K=1), T=3000)
    with pytest.raises(Exception, match="the inner loop diverged"):
        jax.block_until_ready(jax.jit(jax.vmap(hg))(jnp.ones((2, 2))))


NUMPY = [
    (bx.Reverse(K=np.int64(3)), bx.Reverse(K=3)),
    (bx.Reverse(segment=np.int32(3)), bx.Reverse(segment=3)),
    (bx.Reverse(segment=(np.int64(9), np.int8(3))), bx.Reverse(segment=(9, 3))),
    (bx.AdaptiveReverse(np.float32(0.5), jnp.asarray(9)), bx.AdaptiveReverse(0.5, 9)),
    (bx.AdaptiveKrylov(np.float64(0.5), np.int64(2)), bx.AdaptiveKrylov(0.5, 2)),
    (bx.Krylov(np.int64(2), np.array(4)), bx.Krylov(2, 4)),
    (bx.Forward(np.int64(2)), bx.Forward(2)),
    (bx.Neumann(np.int64(2)), bx.Neumann(2)),
    (bx.Implicit(damping=np.float64(0.5)), bx.Implicit(damping=0.5)),
    (bx.Audit(share=np.float64(0.5)), bx.Audit(share=0.5)),
]


@pytest.mark.parametrize("given, plain", NUMPY, ids=lambda rule: repr(rule))
def test_numbers_of_numpy_are_numbers(given, plain):
    """Equinox warns of arrays that are static, and a program would take one for an argument."""
    assert repr(given) == repr(plain) and given == plain and hash(given) == hash(plain)


def test_solve_refuses_to_differentiate_the_context():
    xi = bx.Descent(lambda w, lam, S: jnp.sum((w - lam * S["x"]) ** 2), ZERO, SGD)
    outer = lambda x: jnp.sum(bx.solve(xi, LAM, {"x": x}, T=3))
    with pytest.raises(ValueError, match=r"differentiable in lam only, but S\['x'\] is being"):
        jax.grad(outer)(jnp.ones(2))
    start = lambda w: jnp.sum(bx.solve(bx.Descent(g, bx.constant(w), SGD), LAM, T=3))
    with pytest.raises(ValueError, match="differentiable in lam only, but xi.init.w is being"):
        jax.grad(start)(jnp.ones(2))


def test_an_S_that_nobody_gave():
    reads = lambda w, lam, S: jnp.sum((w - lam * S["x"]) ** 2)
    xi = bx.Descent(reads, ZERO, SGD)
    minimize = lambda: bx.minimize(f, xi, bx.Reverse(), LAM, T=3, steps=2, optimizer=SGD)
    for call in (lambda: run(g=reads), lambda: run(f=reads), minimize):
        with pytest.raises(TypeError) as found:
            call()
        assert "no S was given: give f and g theirs, as in hg(lam, S)" in found.value.__notes__[0]


def test_integers_that_do_not_fit():
    text = r"S\['id'\] has int64 numbers from 7 to 1099511627783, of which JAX would keep .* int32"
    with jax.enable_x64(False):
        with pytest.raises(ValueError, match=text):
            run_with({"id": np.array([7, 2**40 + 7])})
        assert check.context(np.array([7, 2**31 - 1])).dtype == "int64"  # jit makes it int32
    assert run_with({"id": np.array([7, 2**40 + 7])}).h.shape == (2,)
