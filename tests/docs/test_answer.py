"""The methods that bilevax is raced with are right: they find the known answer of a quadratic."""

import itertools
import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from benchmarks.answer import best, follow, table
from benchmarks.answer.methods import METHODS, blind
from benchmarks.answer.methods.ours import minimize
from benchmarks.answer.page import TABLES
from benchmarks.answer.problem import Problem, curvature, solved
from benchmarks.peers.page import fill
from quoted import RESULTS, page

import bilevax as bx

M, N, PULL, STEPS = 6, 4, 0.5, 4000
RNG = np.random.default_rng(0)
A, b, c = (RNG.normal(size=shape) for shape in ((M, N), (M,), (N,)))
BASIS, _ = np.linalg.qr(RNG.normal(size=(M, M)))
G = BASIS * np.linspace(0.6, 1.0, M) @ BASIS.T
OWN = "bilevax: SOBA", "bilevax: AmIGO"
SINGLE = [n for n in METHODS if n.startswith(OWN) or not n.startswith(("bilevax", "jaxopt"))]


@pytest.fixture(autouse=True)
def as_in_the_benchmark():
    with jax.numpy_dtype_promotion("standard"), jax.enable_x64(True):
        yield


def answer(sigma):
    """The lam that minimises min_w f + sigma g - min_w sigma g; for sigma = inf, the answer."""
    weight = np.eye(M) if sigma == np.inf else sigma * G @ np.linalg.inv(np.eye(M) + sigma * G)
    return np.linalg.solve(A.T @ weight @ A + PULL * np.eye(N), A.T @ weight @ b + PULL * c)


def problem(rows=20):
    """g = |w - A lam|_G^2 / 2 and f = |w - b|^2 / 2 + |lam - c|^2 / 4, as means over equal rows."""
    g = lambda w, lam, S: jnp.mean(S["x"]) * (w - A @ lam) @ G @ (w - A @ lam) / 2
    own = lambda w, lam: jnp.sum((w - b) ** 2) / 2 + PULL * jnp.sum((lam - c) ** 2) / 2
    f = lambda w, lam, S: jnp.mean(S["x_val"]) * own(w, lam)
    S = {k: jnp.ones(rows) for k in ("x", "y", "x_val", "y_val")} | {"rows": None}
    return Problem(f, g, jnp.zeros(N), jnp.zeros(M), S, 1.0, solved)


@pytest.mark.parametrize("name", SINGLE)
def test_finds_the_known_answer(name):
    p = problem()
    made = follow.program(p, METHODS[name](20))
    state = made.begin
    for rate in (0.03, 0.003, 0.0003):
        state = made.chunk(state, rate, STEPS)
    sigma = np.cbrt(3.0 * STEPS) if "F2SA" in name else np.inf
    assert np.allclose(state.lam, answer(sigma), atol=2e-3)
    assert np.allclose(answer(np.inf), answer(1e9), atol=1e-6)
    assert np.linalg.norm(state.lam - answer(np.inf)) < 0.1 * np.linalg.norm(answer(np.inf))


def test_minibatches_are_blocks_of_rows():
    p = problem()._replace(S=problem().S | {"y": jnp.arange(20.0)})
    rows = [p.sample(t, 5) for t in range(40)]
    assert all(np.array_equal(S["y"], S["rows"]) and S["rows"][0] % 5 == 0 for S in rows)
    assert {int(S["rows"][0]) for S in rows} == {0, 5, 10, 15} and p.sample(3, None) is p.S


def test_ours_is_minimize():
    p = problem()
    for rule, warm, correct in ((bx.Reverse(K=2), False, True), (bx.Neumann(1), True, False)):
        made = follow.program(p, minimize(rule, 10, warm, correct=correct))
        xi = bx.Descent(p.g, bx.constant(p.w), optax.sgd(p.gamma))
        want = bx.minimize(
            p.f, xi, rule, p.lam, T=10, steps=6, S=p.S,
            optimizer=optax.adam(0.1), warm_start=warm, correct=correct,
        )  # fmt: skip
        state = made.begin
        while int(state.tau) < 6:
            state = made.chunk(state, 0.1, 1)
        assert np.allclose(state.lam, want.lam, rtol=1e-6)


def test_the_judge_trains_to_the_end():
    p = problem()
    lam = jnp.ones(N)
    assert np.isclose(p.judge(p, lam), p.f(A @ lam, lam, p.S), rtol=1e-5)
    assert np.isclose(curvature(p.g, p.w, lam, p.S), 1.0, rtol=1e-2)


class Counted(NamedTuple):
    lam: int


def test_the_clock_stands_while_lam_is_judged():
    ticks = itertools.count()
    made = follow.Program(Counted(0), lambda s, _, n: Counted(s.lam + n), lambda k: 1 / k, 0.0)
    found = follow.follow(made, 0.1, 5.0, lambda: float(next(ticks)))
    assert found["seconds"] == [1, 2, 3, 4, 5]  # one tick for each chunk, none for a judge
    assert found["iterations"] == [1, 2, 3, 4, 5] and found["losses"] == [
        1,
        1 / 2,
        1 / 3,
        1 / 4,
        1 / 5,
    ]


def test_a_run_ends_where_numbers_do():
    judge = lambda k: math.nan if k > 2 else 1.0
    made = follow.Program(Counted(0), lambda s, _, n: Counted(s.lam + n), judge, 0.0)
    found = follow.follow(made, 0.1, 5.0, itertools.count().__next__)
    assert found["losses"] == [1.0, 1.0]


RUNS = [
    {"rate": 0.1, "seconds": [1, 2], "losses": [1.5, 1.005], "compile_s": 1.0},
    {"rate": 0.3, "seconds": [1, 3], "losses": [1.4, 1.0], "compile_s": 1.0},
    {"rate": 1.0, "seconds": [], "losses": [], "compile_s": 1.0},
]


def test_the_best_step_size_is_the_first_at_the_target():
    assert best.run(RUNS, 1.01)["rate"] == 0.1 and best.run(RUNS, 1.004)["rate"] == 0.3
    assert best.run(RUNS, 0.5)["rate"] == 0.3  # nobody is there: the lowest loss
    far = [row | {"losses": [2 * loss for loss in row["losses"]]} for row in RUNS]
    first, second, third = table._lines({"a": RUNS, "b": far, "c": RUNS[2:]})
    assert (first.seconds, first.rate, first.above) == (2, 0.1, 0.0)
    assert second.seconds == third.seconds == math.inf and second.above == 1.0


def test_random_search_keeps_the_best():
    made = blind.random_search(problem()._replace(lam=jnp.full(N, -8.0)))
    states = [made.begin]
    for _ in range(3):
        states.append(made.chunk(states[-1], 0.0, 4))
    losses = [state.loss for state in states]
    assert losses == sorted(losses, reverse=True) and losses[-1] < losses[0]
    assert np.isclose(made.judge(states[-1].lam), losses[-1])


def test_what_the_page_says_of_winners():
    found = {
        title: {row.name: row for row in sorted(rows, key=lambda row: row.seconds)}
        for title, rows in table.lines(RESULTS / "benchmarks").items()
    }
    few = {name: row.seconds for name, row in found.pop("20 penalties").items()}
    own = "bilevax: SOBA, minibatches"
    winners = {
        "hypercleaning": "SOBA, minibatches",
        "MLP": "SOBA, minibatches",
        "penalties": "AmIGO-CG",
    }
    for title, winner in winners.items():
        assert next(iter(found[title])) in {winner, f"bilevax: {winner}"}
    assert math.isinf(found["MLP"][own].seconds) and 1.35 <= 100 * found["MLP"][own].above < 1.45
    cleaning = {name: row.seconds for name, row in found["hypercleaning"].items()}
    assert 3.5 < cleaning["bilevax: SOBA"] / cleaning[own] < 4.5
    deep = ["bilevax: full", "bilevax: K=5", "bilevax: Krylov(1, 10)"]
    assert all(math.isinf(rows[name].seconds) for rows in found.values() for name in deep)
    assert max(few[name] for name in deep) < 0.22
    assert few["random search"] > few["Optuna: TPE"] > max(list(few.values())[:-2])


def test_page_is_drawn_from_records():
    text = page("docs/benchmarks.md")
    assert fill(text, RESULTS / "benchmarks", TABLES) == text and "<!-- answers -->" in text
