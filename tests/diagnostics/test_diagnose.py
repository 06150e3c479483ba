"""`diagnose` on problems whose answers are known."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import bilevax as bx
from bilevax import problems
from bilevax.diagnostics._measure import measure
from bilevax.diagnostics._program import compile_program

length = lambda x: float(np.sqrt(sum(np.sum(np.square(a)) for a in jax.tree.leaves(x))))

# Most tests ask about one quadratic, whose numbers are in S, so that it is compiled once:
# g = sum_i c_i (w_i - lam_i)^2 / 2 from w = 2; f = scale |w - 1|^2 / 2 + direct * sum(lam).
T = 40
XI = bx.Descent(
    lambda w, lam, S: jnp.sum(S["c"] * (w - lam) ** 2) / 2,
    bx.constant(jnp.full(3, 2.0)),
    optax.sgd(1.0),
)
LAM = jnp.zeros(3)


def F(w, lam, S):
    return S["scale"] * jnp.sum((w - 1.0) ** 2) / 2 + S["direct"] * jnp.sum(lam)


def quadratic(*spectrum, direct=0.0, scale=1.0, **more):
    S = {"c": jnp.asarray(spectrum), "direct": jnp.asarray(direct), "scale": jnp.asarray(scale)}
    d = bx.diagnose(F, XI, LAM, S, T=T, **more)
    assert str(d).startswith(f"* {d.advice[0]}")
    return d


@pytest.mark.parametrize("T", [1, 7, 9])
def test_every_depth_is_that_of_reverse(T):
    p = problems.logistic()
    start = bx.constant({"slope": jnp.ones(5), "offset": jnp.ones(())})  # at 0 lam does not act
    xi = bx.Descent(p.xi.g, start, optax.adam(0.1, eps_root=1e-8))
    d = bx.diagnose(p.f, xi, p.lam, p.S, T=T, lanczos=0)
    exact = bx.hypergradient(p.f, xi, bx.Reverse(), T=T)(p.lam, p.S).h
    assert d.depths.tolist() == list(range(1, T + 1))
    for K in {1, (T + 1) // 2, T}:
        h = bx.hypergradient(p.f, xi, bx.Reverse(K=K), T=T)(p.lam, p.S).h
        i = K - 1
        np.testing.assert_allclose(d.bias[i], length(h - exact), atol=1e-12)
        dot = jnp.vdot(h, exact)
        np.testing.assert_allclose(d.cosine[i], dot / length(h) / length(exact), rtol=1e-9)
        np.testing.assert_allclose(d.descent[i], dot / length(exact) ** 2, rtol=1e-9)


def test_a_few_depths_are_those_of_all_and_all_are_printed():
    every = quadratic(0.05, 0.3, 0.7)
    few = quadratic(0.05, 0.3, 0.7, depths=(20, 4, 39), lanczos=0)
    assert few.depths.tolist() == [4, 20, 39] and few.theory is None and few.bound is None
    np.testing.assert_allclose(few.bias, every.bias[[3, 19, 38]], atol=1e-14)
    assert "not measured" in str(few)
    printed = lambda d: [line.split()[0] for line in str(d).splitlines() if line.startswith("  ")]
    assert printed(few) == ["K", "4", "20", "39"]
    assert printed(every) == ["K", "1", "2", "3", "5", "7", "10", "15", "20", "30", "40"]


def test_a_few_steps_suffice():
    d = quadratic(0.8, 0.85, 0.9)  # forgets 80 % in a step
    text = "Reverse(K=2) is within 10 % of the whole hypergradient, Reverse(K=3) within 1 %."
    assert d.advice[0] == text
    np.testing.assert_allclose(d.contraction, 0.2, rtol=0.05)
    assert any("stationary to the eye" in sentence for sentence in d.advice)


def test_bounds_and_spectrum_of_a_quadratic():
    d = quadratic(0.05, 0.3, 0.7)
    np.testing.assert_allclose([d.theory.gamma_alpha, d.theory.gamma_beta], [0.05, 0.7], rtol=1e-6)
    np.testing.assert_allclose(d.theory.norm_B, 0.7, rtol=1e-3)
    np.testing.assert_allclose(d.theory.least_singular, 0.05 / 0.7, rtol=1e-6)
    assert (d.bias <= d.bound * (1 + 1e-9)).all() and (d.bias <= d.local_bound * (1 + 1e-9)).all()
    np.testing.assert_allclose(
        d.bound, 0.95**d.depths / 0.05 * d.slope * d.theory.norm_B, rtol=1e-6
    )


def test_slow_contraction_wants_more_than_truncation():
    text = quadratic(0.02, 0.03, 0.05).advice[0]
    assert "Truncation loses too much: after half of the T = 40 steps" in text
    assert "AdaptiveKrylov(rtol=0.1), or Reverse(segment=7)" in text


def test_hyperparameters_of_the_start_alone():
    g = lambda w, lam, S: jnp.sum(w**2) / 4
    xi = bx.Descent(g, lambda lam, S: lam["start"], optax.sgd(0.1))
    f = lambda w, lam, S: jnp.sum((w - 1.0) ** 2)
    d = bx.diagnose(f, xi, {"start": jnp.ones(2)}, T=10, lanczos=0)
    assert d.advice[0].startswith("lam['start'] enters only through the initialisation")
    assert "Reverse(segment=4)" in d.advice[0]
    np.testing.assert_allclose(d.error, 1.0)


def test_a_loop_that_forgets_nothing():
    g = lambda w, lam, S: -lam @ w  # flat: A = I
    xi = bx.Descent(g, bx.constant(jnp.zeros(3)), optax.sgd(0.01))
    f = lambda w, lam, S: jnp.sum((w - 1.0) ** 2)
    d = bx.diagnose(f, xi, jnp.ones(3), T=40)
    assert d.advice[0].startswith("No K is enough: the inner loop does not forget")
    assert any("not strongly convex around w_T" in sentence for sentence in d.advice)
    assert d.bound is None


def test_a_loop_that_expands():
    d = quadratic(-0.1, -0.1, -0.1)
    assert d.advice[0].startswith("No K is enough") and d.contraction > 1.09


def test_an_unstable_loop_is_said_first():
    """And nothing but words: no warning of numpy's, which would be an error here."""
    d = quadratic(9.0, 0.3, 0.7)
    assert d.advice[0].startswith("The inner loop is unstable: gamma beta = 9 > 2. Lower")
    assert any("|grad g| did not fall" in s for s in d.advice)


def test_direction():
    """Where K is enough as a direction long before it is enough in length."""
    d = quadratic(0.06, 0.08, 0.16)
    (said,) = [s for s in d.advice if s.startswith("As a direction Reverse(K=")]
    K = int(said.split("K=")[1].split(")")[0])
    assert d.cosine[K - 1] >= 0.95 and (K == 1 or d.cosine[K - 2] < 0.95) and d.enough(0.1) > K


def test_interference():
    p = problems.counterexample(T=40)
    d = bx.diagnose(p.f, p.xi, p.lam, T=40, lanczos=0)
    assert any(s.startswith("Interference: up to K = ") for s in d.advice[:2])
    assert quadratic(0.8, 0.85, 0.9).interference is None  # f does not see lam: it holds
    d = quadratic(0.8, 0.85, 0.9, direct=-1.0)  # the same direction as the pullback
    assert (d.interference > 0).all() and "Interference" not in str(d)


def test_momentum_has_no_symmetric_step():
    xi = bx.Descent(XI.g, XI.init, optax.sgd(0.3, momentum=0.9))
    S = {"c": jnp.asarray([0.1, 0.3, 0.5]), "direct": jnp.zeros(()), "scale": jnp.ones(())}
    d = bx.diagnose(F, xi, LAM, S, T=60)
    assert d.theory.gamma_alpha is None and d.bound is None
    assert "not defined, A is not symmetric" in str(d)


def test_more_states_than_hyperparameters():
    g = lambda w, lam, S: jnp.sum((w - lam) ** 2) / 2
    xi = bx.Descent(g, bx.constant(jnp.ones(4)), optax.sgd(0.5))
    d = bx.diagnose(lambda w, lam, S: jnp.sum(w), xi, jnp.asarray(0.3), T=20)
    assert "N = 1 < M = 4: B_t cannot have full column rank" in str(d)


def test_steps_too_large_for_the_theory():
    d = quadratic(0.3, 0.7, 1.5)
    assert "gamma beta = 1.5 > 1: Prop. 3.1 does not apply as it stands" in str(d)


def test_nothing_to_say_about_zero():
    assert "exactly zero" in quadratic(0.3, 0.5, 0.7, scale=0.0).advice[0]


def test_dictionary_and_plot():
    d = quadratic(0.05, 0.3, 0.7)
    again = json.loads(json.dumps(d.as_dict()))
    np.testing.assert_allclose(again["error"], d.error)
    assert again["advice"] == d.advice and again["theory"]["symmetric"] is True
    np.testing.assert_allclose(again["leaf_error"]["lam"], d.error)
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("agg")
    lines = d.plot().get_lines()
    assert [line.get_label() for line in lines][1:3] == ["bound, Eq. 10", "bound, Eq. 9"]
    np.testing.assert_allclose(lines[0].get_ydata(), d.bias)


def two_leaves(**more):
    """A rate whose last five steps push it the wrong way, and weights that are right at once."""

    def step(s, lam, S, t):
        sign = jnp.where(t < 15, 1.0, -1.0)
        return {"a": s["a"] + sign * lam["rate"], "b": 0.2 * s["b"] + lam["weights"]}

    xi = bx.Dynamics(lambda lam, S: {"a": jnp.zeros(()), "b": jnp.zeros(3)}, step)
    f = lambda w, lam, S: 100 * w["a"] + jnp.sum(w["b"])
    lam = {"rate": jnp.asarray(0.1), "weights": jnp.ones(3)}
    return bx.diagnose(f, xi, lam, T=20, lanczos=0, **more)


def test_each_leaf_has_its_own_error_cosine_and_advice():
    """In the whole, the large leaf hides that the others are right."""
    d = two_leaves()
    assert (d.cosine[:9] < 0).all()
    np.testing.assert_allclose(d.leaf_cosine["lam['weights']"], 1.0)
    np.testing.assert_allclose(d.leaf_error["lam['weights']"], 0.2**d.depths, atol=1e-12)
    K = d.depths
    wanted = np.where(K <= 5, -K, K - 10) / 10  # h_{T-K} over d_lam f, by counting signs
    np.testing.assert_allclose(d.leaf_error["lam['rate']"], np.abs(1 - wanted), atol=1e-12)
    np.testing.assert_allclose(d.leaf_cosine["lam['rate']"][K != 10], np.sign(wanted)[K != 10])
    enough = d.enough(0.1, "lam['rate']")
    said = f"By leaf, within 10 %: lam['weights'] from K = 2; lam['rate'] from K = {enough}."
    assert said in d.advice and enough > 15
    wrong = "lam['rate'] is pushed the wrong way up to K = 9 (cosine down to -1.00)"
    assert any(s.startswith(wrong) for s in d.advice)
    assert any(s.startswith("As a direction Reverse(K=11) will do") for s in d.advice)


def test_the_leaves_are_printed():
    lines = str(two_leaves(depths=(4, 10))).splitlines()
    at = lines.index("lam['rate']")
    rows = [line.split() for line in lines[at + 2 : at + 4]]
    assert [row[0] for row in rows] == ["4", "10"] and "lam['weights']" in lines
    assert [row[-1] for row in rows] == ["-1.0000", "-"]  # at K = 10 its truncation is zero


def test_weights_for_examples_with_minibatches():
    """`sample` adds the numbers of the rows to S; g on the whole S has none, and fails."""
    x, y = jax.random.normal(jax.random.key(0), (2, 12))

    def sample(S, t):
        rows = jax.random.permutation(jax.random.fold_in(S["key"], t), 12)[:4]
        return S | {"rows": rows}

    g = lambda w, lam, S: jnp.mean(
        lam[S["rows"]] * (S["x"][S["rows"]] * w - S["y"][S["rows"]]) ** 2
    )
    f = lambda w, lam, S: jnp.mean((S["x"] * w - S["y"]) ** 2)
    xi = bx.Descent(g, bx.constant(jnp.zeros(())), optax.sgd(0.1), sample)
    lam, S = jnp.ones(12), {"x": x, "y": y, "key": jax.random.key(1)}
    d = bx.diagnose(f, xi, lam, S, T=6)
    exact = bx.hypergradient(f, xi, bx.Reverse(), T=6)(lam, S).h
    np.testing.assert_allclose(d.h_norm, length(exact), rtol=1e-9)
    assert d.stationarity is None
    assert any("on the whole S, which they need, g raises KeyError: 'rows'." in s for s in d.advice)


def test_memory_is_that_of_two_roots_of_the_horizon():
    """Bytes of the compiled program with a few depths: O(sqrt(T) M), not T M."""
    p = problems.reweighting(n=40)
    depths = jnp.asarray([1, 5, 20], jnp.int32)
    size = lambda T: compile_program(measure, p.f, p.xi, p.lam, p.S, depths, T, 0, True).bytes
    assert size(1024) < 5 * size(64)


MISTAKES = {
    "depths must lie between 1 and T = 20": dict(depths=(5, 30)),
    "depths must be at least 1, got 0": dict(depths=(0, 3)),
    "lanczos must be at least 0": dict(lanczos=-1),
    "T must be at least 1": dict(T=0),
    r"lam must be a floating array, got dtype int": dict(lam=jnp.arange(2)),
}


@pytest.mark.parametrize("text", MISTAKES)
def test_mistakes_are_named(text):
    more = {"lam": LAM, "T": 20} | MISTAKES[text]
    with pytest.raises((TypeError, ValueError), match=text):
        bx.diagnose(F, XI, more.pop("lam"), **more)


def test_no_numbers_inside_a_transformation():
    p = problems.counterexample()
    with pytest.raises(TypeError, match="diagnose reads numbers, and got a tracer: call it outs"):
        jax.jit(lambda lam: bx.diagnose(p.f, p.xi, lam, p.S, T=p.T).bias)(p.lam)


def test_a_loop_that_diverges_is_named():
    with pytest.raises(FloatingPointError, match="the inner loop diverged"):
        quadratic(1e9, 1e9, 1e9)


def test_where_only_sample_adds_rows_every_way_works_or_names_the_remedy():
    x = jax.random.normal(jax.random.key(0), (20, 3))
    order = jnp.arange(60, dtype=jnp.int32).reshape(15, 4) * 5 % 12
    S = {"train": (x[:12], x[:12, 0]), "val": (x[12:], x[12:, 0]), "order": order}
    sample = lambda S, t: S | {"rows": S["order"][t]}

    def g(w, lam, S):
        inputs, targets = (a[S["rows"]] for a in S["train"])
        return jnp.mean(jax.nn.sigmoid(lam[S["rows"]]) * (inputs @ w - targets) ** 2)

    f = lambda w, lam, S: jnp.mean((S["val"][0] @ w - S["val"][1]) ** 2)
    xi, lam = bx.Descent(g, bx.constant(jnp.zeros(3)), optax.sgd(0.1), sample), jnp.zeros(12)
    said = bx.diagnose(f, xi, lam, S, T=6, lanczos=0)
    assert "on the whole S, which they need, g raises KeyError: 'rows'" in str(said)
    rules = [row.rule for row in bx.forecast(f, xi, lam, S, T=6).rows]
    assert rules and not any(isinstance(rule, bx.Neumann) for rule in rules)
    for rule in (bx.Implicit(), bx.Neumann(K=3)):
        with pytest.raises(ValueError, match=r"put it into S too .*'rows': jnp.arange"):
            bx.hypergradient(f, xi, rule, T=6)(lam, S)
    whole = S | {"rows": jnp.arange(12)}  # the remedy
    bx.hypergradient(f, xi, bx.Neumann(K=3), T=6)(lam, whole)
