"""Old names and places, what f may return, and where sentences stand."""

import ast
import gc
import importlib
import pathlib
import sys
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from memory_maps import MAPS, added, new_garbage
from oracle import assert_close

import bilevax as bx
from bilevax import _moved, extend, problems
from bilevax._compile import weak_jit

SOURCE = pathlib.Path(bx.__file__).parent
CALLS = ["_hypergradient.py", "_solve.py", "_visible.py"]
CORE = [
    "_dynamics",
    "_loop.py",
    "_rules",
    *CALLS,
    "_flow.py",
    "_compile.py",
    "_outer",
    "diagnostics",
]


def files(*rooms):
    for room in rooms:
        path = SOURCE / room
        yield from [path] if path.suffix else sorted(path.rglob("*.py"))


@pytest.mark.parametrize("old", _moved.NAMES)
def test_an_old_name_works_and_says_the_new_one(old):
    with pytest.warns(DeprecationWarning, match=rf"bilevax\.{old} is now bilevax\."):
        found = getattr(bx, old)
    assert found.__name__ == _moved.NAMES[old].split(".")[-1]


@pytest.mark.parametrize("old", _moved.MODULES)
def test_an_old_module_works_and_says_the_new_one(old):
    sys.modules.pop(old, None)
    with pytest.warns(DeprecationWarning, match=f"{old} is now {_moved.MODULES[old]}"):
        found = importlib.import_module(old)
    assert found is importlib.import_module(_moved.MODULES[old])


def test_a_name_that_never_was_is_an_attribute_error():
    with pytest.raises(AttributeError, match="module 'bilevax' has no attribute 'Revers'"):
        bx.Revers  # noqa: B018


def test_there_are_about_thirty_names():
    public = [n for n in vars(bx) if not n.startswith("_") and n[0].isalpha()]
    names = [n for n in public if not isinstance(getattr(bx, n), type(sys))]
    assert len(names) <= 36
    of_authors = {"AbstractDynamics", "AbstractRule", "Channel", "Equilibrium", "parse_rule"}
    assert of_authors <= set(vars(extend)) - set(names)


def test_f_may_return_more_than_its_value():
    xi = bx.Descent(
        lambda w, lam, S: jnp.sum((w - lam) ** 2), bx.constant(jnp.zeros(2)), optax.sgd(0.1)
    )
    plain = lambda w, lam, S: jnp.sum(w**2)
    both = lambda w, lam, S: (plain(w, lam, S), {"size": jnp.max(w)})
    run = lambda f, **kw: bx.hypergradient(f, xi, bx.Reverse(K=3), T=5, **kw)(jnp.ones(2))
    (value, aux), h, w, _ = run(both, has_aux=True)
    want = run(plain)
    assert_close((value, h, w), (want.value, want.h, want.w))
    assert_close(aux, {"size": jnp.max(want.w)})
    with pytest.raises(TypeError, match="has_aux=True says that f returns a pair"):
        run(plain, has_aux=True)


@pytest.mark.parametrize("of", ["minimize", "diagnose", "forecast", "check_gradient"])
def test_f_with_more_to_say_goes_everywhere(of):
    p = problems.ridge(T=4)
    calls = {
        "minimize": lambda f, **aux: (
            bx.minimize(
                f, p.xi, bx.Reverse(), p.lam, T=4, steps=2, S=p.S, optimizer=optax.sgd(0.1), **aux
            ).history
        ),
        "diagnose": lambda f, **aux: bx.diagnose(f, p.xi, p.lam, p.S, T=4, **aux).as_dict(),
        "forecast": lambda f, **aux: [
            row.bytes
            for row in bx.forecast(f, p.xi, p.lam, p.S, T=4, rules=[bx.Reverse(K=1)], **aux).rows
        ],
        "check_gradient": lambda f, **aux: (
            bx.check_gradient(
                f, p.xi, bx.Reverse(), p.lam, p.S, T=4, key=jax.random.key(0), directions=1, **aux
            ).slope
        ),
    }
    both = lambda w, lam, S: (p.f(w, lam, S), {"size": jnp.sum(w)})
    want, got = calls[of](p.f), calls[of](both, has_aux=True)
    jax.tree.map(np.testing.assert_array_equal, got, want)
    with pytest.raises(TypeError, match="has_aux=True says that f returns a pair"):
        calls[of](p.f, has_aux=True)


class Halving(bx.extend.AbstractDynamics):
    """An algorithm of one's own: three methods, and `at` for warm starts."""

    first: jax.Array

    def start(self, lam, S):
        return self.first

    def advance(self, s, lam, S, t):
        return (s + lam) / 2

    def read(self, s):
        return s

    def at(self, w):
        return Halving(w)


def test_an_algorithm_of_ones_own_is_prepared_and_warm_started():
    xi = bx.Prepared(lambda lam, S: 3.0 * lam, Halving(jnp.zeros(2)))
    f = lambda w, lam, S: jnp.sum((w - 1.0) ** 2)
    out = bx.hypergradient(f, xi, bx.Reverse(), T=2)(jnp.ones(2))
    assert_close(out.w, 2.25 * jnp.ones(2))
    assert_close(out.h, 2 * 1.25 * 2.25 * jnp.ones(2))
    result = bx.minimize(
        f, xi, bx.Reverse(), jnp.ones(2), T=2, steps=30, optimizer=optax.sgd(0.05), warm_start=True
    )
    assert_close(3.0 * result.lam, jnp.ones(2), 0.05)


def test_rules_and_outer_loop_name_no_inner_algorithm():
    for path in files("_rules", "_outer", "_loop.py", *CALLS):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "isinstance":
                names = {n.id for n in ast.walk(node.args[1]) if isinstance(n, ast.Name)}
                assert not names & {"Descent", "Dynamics", "Prepared"}, path


def test_sentences_to_the_user_stand_in_errors():
    """No exception is made from a text, and no warning given, in any other file of the core."""
    for path in files(*CORE):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
                told = [a for a in ast.walk(node.exc) if isinstance(a, ast.JoinedStr)]
                told += [a for a in node.exc.args if isinstance(getattr(a, "value", 0), str)]
                assert not told, path
            assert not (isinstance(node, ast.Attribute) and ast.unparse(node) == "warnings.warn"), (
                path
            )


RULES = [bx.Reverse(segment=2), bx.Implicit()]
MORE = [bx.Forward(), bx.Krylov(1, 3), bx.AdaptiveReverse(0.1, 5)]
MANY = [pytest.param(rule, 20, marks=pytest.mark.slow) for rule in RULES + MORE]


@pytest.mark.skipif(not MAPS.exists(), reason="needs /proc")
@pytest.mark.parametrize("rule, calls", [(rule, 5) for rule in RULES] + MANY, ids=repr)
def test_programs_go_with_the_functions_they_were_made_of(rule, calls):
    def once():
        g = lambda w, lam, S: jnp.sum((w - lam) ** 2) / 2
        xi = bx.Descent(g, bx.constant(jnp.zeros(2)), optax.sgd(0.5))
        hg = bx.hypergradient(lambda w, lam, S: jnp.sum(w**2), xi, rule, T=5)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", bx.ToleranceWarning)
            jax.block_until_ready(hg(jnp.ones(2)))
            jax.grad(lambda lam: jnp.sum(bx.solve(xi, lam, T=5, rule=rule)))(jnp.ones(2))
            jax.effects_barrier()

    assert added(lambda i: once(), calls) <= 8  # a program holds about twenty


def test_equal_functions_compile_once():
    traced = []

    @weak_jit
    def double(f, x):
        traced.append(1)
        return 2 * f(x)

    f = jnp.sin
    assert_close(double(f, jnp.ones(2)), double(f, jnp.ones(2)))
    assert len(traced) == 1
    double(jnp.cos, jnp.ones(2))
    assert len(traced) == 2


def test_numbers_that_python_calls_equal_have_programs_of_their_own():
    f = lambda w, lam, S: jnp.sum(w) * (jnp.copysign(2.0, S) if isinstance(S, float) else 1.0 + S)
    p = problems.counterexample()
    hg = bx.hypergradient(f, p.xi, bx.Reverse(), T=p.T)
    value = lambda S: hg(p.lam, S).value
    assert_close(value(0.0), -value(-0.0))
    assert_close(value(0), value(0.0) / 2)
    kind = weak_jit(lambda S, x: x * (3.0 if S is True else 1.0))
    assert [float(kind(S, jnp.ones(()))) for S in (True, 1, 1.0)] == [3.0, 1.0, 1.0]


def test_a_program_goes_with_the_object_whose_method_it_was_made_of():
    """An object that decides what it is equal to is compared by itself, and kept."""

    class Model:
        def __init__(self, factor):
            self.factor = factor

        def times(self, x):
            return self.factor * x

    class Named(Model):
        def __eq__(self, other):
            return True

        def __hash__(self):
            return 0

    traced = []

    @weak_jit
    def call(f, x):
        traced.append(1)
        return f(x)

    for kind, kept in ((Model, 0), (Named, 3)):
        with new_garbage():
            for i in range(3):
                model = kind(1.0 + i)
                for _ in range(2):
                    assert_close(call(model.times, jnp.ones(2)), (1.0 + i) * jnp.ones(2))
            assert len(traced) == 3
            traced.clear()
            del model
            gc.collect()
            assert len(call._programs) == kept
