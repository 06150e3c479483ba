"""What is said of a program before it runs is what the program then is."""

import io
import json
import sys

import equinox as eqx
import jax
import jax.numpy as jnp
import lineax as lx
import optax
import pytest

import bilevax as bx
from bilevax import problems
from bilevax._hypergradient import _checked
from bilevax.diagnostics import ForecastRow
from bilevax.diagnostics._flops import FUNCTION, Count, count_flops
from bilevax.diagnostics._forecast import _forward, _usual
from bilevax.diagnostics._program import compile_program, largest

M = 12


def linear():
    """s <- s - (G s - lam) / 2, f = <b, w>: every operation can be counted by hand."""
    step = lambda s, lam, S, t: s - 0.5 * (S["G"] @ s - lam)
    xi = bx.Dynamics(lambda lam, S: jnp.zeros(M), step)
    S = {"G": jnp.eye(M), "b": jnp.ones(M)}
    return (lambda w, lam, S: w @ S["b"]), xi, jnp.ones(M), S


def curved():
    """s <- tanh(G s - lam): the way back needs the iterates."""
    f, _, lam, S = linear()
    step = lambda s, lam, S, t: jnp.tanh(S["G"] @ s - lam)
    return f, bx.Dynamics(lambda lam, S: jnp.zeros(M), step), lam, S


def work(rule, T, problem=None):
    """Operations of a rule, counted without compiling."""
    f, xi, lam, S = problem or linear()
    return count_flops(lambda x: _checked(f, xi, rule, *x, T, False), (lam, S))


def flops(rule, T, problem=None):
    return work(rule, T, problem).flops


def allocated(f, xi, lam, S, rule, T):
    """What XLA says of the program that `hypergradient` runs."""
    arrays, fixed = eqx.partition((f, xi, rule, lam, S, T, False), eqx.is_array)
    run = jax.jit(lambda arrays: _checked(*eqx.combine(arrays, fixed)))
    memory = run.lower(arrays).compile().memory_analysis()
    return memory.temp_size_in_bytes + memory.output_size_in_bytes


@pytest.mark.parametrize(
    "p, rule",
    [
        (problems.reweighting(), bx.Reverse(K=4, segment=2)),
        (problems.ridge(T=30).with_inner(optax.adam(0.1)), bx.Neumann(3)),
        (problems.quadratic(), bx.Krylov(1, 3)),
    ],
)
def test_bytes_are_those_of_the_program_that_runs(p, rule):
    (row,) = bx.forecast(p.f, p.xi, p.lam, p.S, T=p.T, rules=[rule]).rows
    assert row.bytes == allocated(p.f, p.xi, p.lam, p.S, rule, p.T)
    assert row.flops == flops(rule, p.T, (p.f, p.xi, p.lam, p.S))


def test_shapes_say_as_much_as_arrays():
    f, xi, lam, S = linear()
    shapes = jax.eval_shape(lambda: (lam, S))
    by_arrays = bx.forecast(f, xi, lam, S, T=9, rules=[bx.Reverse(K=3)])
    assert bx.forecast(f, xi, *shapes, T=9, rules=[bx.Reverse(K=3)]) == by_arrays


def test_a_problem_larger_than_any_machine():
    """800 TB of data, and states of 8 GB: nothing is allocated."""
    M = 10**9
    f = lambda w, lam, S: jnp.sum(w**2)
    g = lambda w, lam, S: jnp.mean((S @ w) ** 2) + jnp.sum(jnp.exp(lam) * w**4)
    xi = bx.Descent(g, lambda lam, S: lam, optax.sgd(0.1))
    lam, S = jax.ShapeDtypeStruct((M,), float), jax.ShapeDtypeStruct((10**5, M), float)
    out = bx.forecast(f, xi, lam, S, T=1000, rules=[bx.Reverse(K=3), bx.Reverse()], memory=1e12)
    assert [row.fits for row in out.rows] == [True, False]
    assert out.rows[1].bytes > 1000 * 8 * M
    assert 50 < out.largest_K < 150 and out.segment == 32


def test_forward_pass_by_hand():
    """A product, then -, times 1/2, - in each step; <b, w> at the end."""
    T, (f, xi, lam, S) = 7, linear()
    found = count_flops(lambda x: _forward(f, xi, *x, T), (lam, S))
    assert found.flops == T * (2 * M**2 + 3 * M) + 2 * M


def test_a_step_back_by_hand():
    """A_t alpha: a product, two signs, 1/2, a sum; and 0 + h + B_t alpha, as optax adds."""
    assert flops(bx.Reverse(K=6), 9) - flops(bx.Reverse(K=5), 9) == 2 * M**2 + 6 * M


def test_reverse_is_linear_in_K_and_in_T():
    by_K = [flops(bx.Reverse(K=K), 40) for K in (5, 15, 25)]
    by_T = [flops(bx.Reverse(), T) for T in (10, 20, 30)]
    for a, b, c in (by_K, by_T):
        assert c - b == b - a > 0


def test_segments_take_one_more_forward_pass():
    T, step = 16, 2 * M**2 + M + FUNCTION * M
    more = flops(bx.Reverse(segment=4), T, curved()) - flops(bx.Reverse(), T, curved())
    assert more == T * step


def test_forward_mode_is_linear_in_N():
    def of_size(N):
        step = lambda s, lam, S, t: s - 0.5 * (S["G"] @ s - jnp.resize(lam, M))
        f, _, _, S = linear()
        xi = bx.Dynamics(lambda *_: jnp.zeros(M), step)
        return flops(bx.Forward(), 5, (f, xi, jnp.ones(N), S))

    few, some, many = map(of_size, (2, 4, 8))
    assert many - some == pytest.approx(2 * (some - few), rel=0.05)


def test_truncation_is_flat_in_T():
    f, xi, lam, S = linear()
    size = lambda T: compile_program(_checked, f, xi, bx.Reverse(K=5), lam, S, T, False).bytes
    assert size(10) == size(1000)


COUNTS = [
    (lambda x: jnp.exp(x), (FUNCTION * 6, False)),
    (lambda x: jnp.sum(x, 0), (6, False)),
    (lambda x: (x.T, x + 1)[0], (0, False)),
    (lambda x: jax.lax.cond(x[0, 0] > 0, jnp.sin, lambda x: x, x), (FUNCTION * 6, False)),
    (lambda x: jax.lax.fori_loop(0, 5, lambda _, x: x * 2, x), (30, False)),
    (lambda x: jax.lax.while_loop(lambda x: x[0, 0] < 9, lambda x: x * 2, x), (6, True)),
    (lambda x: jax.checkpoint(jax.jit(lambda x: x @ x.T))(x), (2 * 2 * 2 * 3, False)),
    (lambda x: jax.vmap(lambda a: a @ a)(x), (2 * 6, False)),
    (lambda x: jax.nn.relu(x), (6, False)),
    (lambda x: jnp.convolve(x[0], jnp.ones(2), "valid"), (2 * 2 * 2, False)),
]


@pytest.mark.parametrize("fun, wanted", COUNTS)
def test_counts(fun, wanted):
    assert count_flops(fun, jnp.ones((2, 3))) == Count(*wanted)


def test_what_ends_by_itself_is_a_lower_limit():
    p = problems.quadratic()
    of = lambda rule: work(rule, p.T, (p.f, p.xi, p.lam, p.S)).at_least
    assert of(bx.AdaptiveReverse(0.1, 5)) and of(bx.Implicit(lx.CG(1e-6, 1e-6)))
    assert not of(bx.Reverse()) and not of(bx.Krylov())


def test_the_search_asks_little_and_is_right_on_any_growing_size():
    asked = []
    line = lambda n: asked.append(n) or 7 * n + 100
    assert largest(line, 10_000, 7 * 4321 + 103) == 4321 and len(asked) <= 4
    for bend in (lambda n: n**3, lambda n: int(n**0.3 * 1000), lambda n: n // 10):
        for n in (1, 2, 10, 777, 1000):
            found = largest(bend, 1000, bend(n))
            assert bend(found) <= bend(n) and (found == 1000 or bend(found + 1) > bend(n))
    assert largest(line, 50, 50) == 0


def test_flops_have_the_order_of_the_work():
    p = problems.reweighting(n=500, D=50)
    rules = [bx.Reverse(K=1), bx.Reverse(K=25), bx.Reverse(), bx.Reverse(segment=7)]
    one, *rest = [flops(rule, p.T, (p.f, p.xi, p.lam, p.S)) for rule in rules]
    forward = count_flops(lambda x: _forward(p.f, p.xi, *x, p.T), (p.lam, p.S)).flops
    assert one < 1.2 * forward and [one, *rest] == sorted([one, *rest])
    assert 2 * forward < rest[1] < 4 * forward


def test_segments_of_segments_where_the_square_root_does_not_fit():
    f, xi, lam, S = curved()
    memory = allocated(f, xi, lam, S, bx.Reverse(segment=(64, 8)), 512)
    assert memory < allocated(f, xi, lam, S, bx.Reverse(segment=23), 512)
    out = bx.forecast(f, xi, lam, S, T=512, rules=[bx.Reverse()], memory=memory)
    assert out.segment == (64, 8) and "Reverse(segment=(64, 8)) does, and is as" in str(out)


def test_it_is_said_in_words_and_in_json():
    """The rules that fit, and the largest K that does, while one more does not."""
    size = lambda rule: allocated(*curved(), rule, 40)
    f, xi, lam, S = curved()
    rules = [bx.Reverse(), bx.Reverse(segment=5), bx.Reverse(K=2), bx.Forward()]
    memory = size(bx.Reverse(segment=7))
    out = bx.forecast(f, xi, lam, S, T=40, rules=rules, memory=memory)
    K = out.largest_K
    assert out.segment == 7 and size(bx.Reverse(K=K)) <= memory < size(bx.Reverse(K=K + 1))
    first, second, third, fourth = out.advice
    assert "kB fit Reverse(segment=5), Reverse(K=2); not Reverse(), Forward()." in first
    assert second.startswith("The cheapest exact rule that fits is Reverse(segment=5), with")
    assert third == "Reverse() does not fit, but Reverse(segment=7) does, and is as exact."
    assert fourth == f"The largest K for which Reverse(K) fits is {K}, of T = 40."
    assert all(f"* {sentence}" in str(out) for sentence in out.advice)
    assert [line.split()[-1] for line in str(out).splitlines()[-4:]] == ["no", "yes", "yes", "no"]
    assert json.loads(json.dumps(out.as_dict()))["rows"][2]["rule"] == "Reverse(K=2)"


def test_a_lower_limit_is_marked():
    row = ForecastRow(bx.AdaptiveReverse(0.1, 5), 8000, 800, 500, 100, at_least=True, fits=None)
    out = bx.diagnostics.Forecast(10, (row,), None, None, None)
    (said,) = out.advice
    assert said.endswith(": stops by itself, so the operations below are a lower limit.")
    assert str(out).splitlines()[-1].endswith("8 kB  5.00e+02      >5.00")


def test_the_usual_rules_are_compared_when_none_is_named():
    usual = [bx.Reverse(), bx.Reverse(segment=4), bx.Reverse(K=1), bx.Krylov(), bx.Neumann(1)]
    assert _usual(10) == usual
    assert not any(isinstance(rule, bx.Krylov) for rule in _usual(3))


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize("kind", [io.StringIO, Terminal])
def test_a_terminal_is_told_what_is_compiled(kind, monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys, "stderr", kind())
    wrong()
    said = sys.stderr.getvalue()
    assert ("compiling Reverse()" in said) is (kind is Terminal)
    assert said or kind is io.StringIO


def wrong(T=3, rules=(bx.Reverse(),), memory=None, lam=jnp.ones(M)):
    f, xi, _, S = linear()
    return bx.forecast(f, xi, lam, S, T=T, rules=rules, memory=memory)


WRONG = [
    (dict(rules=bx.Reverse()), TypeError, r"rules must be a list of rules, got Reverse\(\): write"),
    (dict(rules=[]), TypeError, r"rules must be a list of rules, got \[\]"),
    (dict(rules=["Reverse"]), TypeError, "rule must be a rule, as in .* got the str 'Reverse'"),
    (dict(memory=0), ValueError, "memory must be positive, got 0: give the number of bytes"),
    (dict(memory="8 GB"), TypeError, "memory must be a Python float, got '8 GB'"),
    (dict(T=0), ValueError, "T must be at least 1, got 0"),
    (dict(rules=[bx.Reverse(K=4)]), ValueError, "looks K = 4 steps back, .* only T = 3"),
    (dict(lam=jnp.arange(M)), TypeError, "lam must be a floating array, got dtype int"),
    (
        dict(lam=jax.ShapeDtypeStruct((M,), jnp.int32)),
        TypeError,
        "lam must be a floating array, got dtype int32",
    ),
]


@pytest.mark.parametrize("change, kind, text", WRONG)
def test_wrong_use_gets_a_sentence(change, kind, text):
    with pytest.raises(kind, match=text):
        wrong(**change)
