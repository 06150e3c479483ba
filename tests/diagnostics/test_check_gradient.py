"""`check_gradient` finds what is wrong, and blames nothing that is right."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import bilevax as bx
from bilevax import problems
from bilevax.diagnostics import GradientCheck

KEY = jax.random.key(0)


def check(p, rule, T=None, **more):
    return bx.check_gradient(p.f, p.xi, rule, p.lam, p.S, T=T or p.T, key=KEY, **more)


@pytest.mark.parametrize("make", [problems.ridge, problems.logistic, problems.toy])
def test_exact_rules_agree_with_finite_differences(make):
    got = check(make(T=60), bx.Reverse(segment=7))
    assert got.agrees and got.error < 1e-7 and got.resolution < 1e-6
    assert "they agree" in str(got)


def test_truncation_is_seen_and_measured():
    p = problems.ridge(T=60)
    got = check(p, bx.Reverse(K=2), directions=40)
    exact, short = (
        bx.hypergradient(p.f, p.xi, rule, T=p.T)(p.lam, p.S).h
        for rule in (bx.Reverse(), bx.Reverse(K=2))
    )
    true = jnp.linalg.norm(short - exact) / jnp.linalg.norm(exact)
    assert not got.agrees and "times what rounding in float64 explains" in str(got)
    np.testing.assert_allclose(got.error, true, rtol=0.5)  # 40 directions in six dimensions


def test_a_wrong_derivative_of_a_user_is_found():
    @jax.custom_vjp
    def square(x):
        return x**2

    square.defvjp(lambda x: (x**2, x), lambda x, c: (c * x,))  # should be 2 c x
    g = lambda w, lam, S: jnp.sum((w - lam) ** 2)
    f = lambda w, lam, S: jnp.sum(square(w))
    for dtype, rtol in ((jnp.float64, 1e-6), (jnp.float32, 1e-5)):
        xi = bx.Descent(g, bx.constant(jnp.zeros(3, dtype)), optax.sgd(0.1))
        got = bx.check_gradient(f, xi, bx.Reverse(), jnp.ones(3, dtype), T=5, key=KEY)
        assert not got.agrees and not got.rounded  # float32 is not to blame
        np.testing.assert_allclose(got.slope, got.difference / 2, rtol=rtol)


def test_rounding_in_float32_is_not_taken_for_a_wrong_gradient():
    """w lies far from zero, so that f loses digits that |f| does not tell of."""
    g = lambda w, lam, far: jnp.sum((w - far - lam) ** 2)
    f = lambda w, lam, far: jnp.sum((w - far) ** 2)
    xi = bx.Descent(g, lambda lam, far: jnp.full(3, far), optax.sgd(0.1))
    for far in np.float32([1e3, 1e4, 1e5]):
        S = jnp.asarray(far)
        got = bx.check_gradient(f, xi, bx.Reverse(), jnp.ones(3, jnp.float32), S, T=5, key=KEY)
        assert got.agrees and got.resolution < 0.1 and got.dtype == "float32"


def test_float32_is_named_where_it_may_be_the_cause():
    one = np.ones(1)
    made = lambda gap: GradientCheck(
        one + gap, one, 1e-4 * one, one, one[None], 1e-4 * one, "float32"
    )
    assert "as rounding in float32 may explain: check in a wider dtype" in str(made(1e-3))
    assert "by 1e+03 times what rounding in float32 explains" in str(made(0.1))


def test_the_sweep_separates_truncation_from_rounding():
    """Large steps err like eps^2, small ones like 1/eps; the chosen one lies between."""
    got = check(problems.logistic(), bx.Reverse(), directions=1)
    wrong = np.abs(got.sweep[0] - got.slope[0])
    assert 8 < wrong[3] / wrong[4] < 32  # a factor of 4 in eps is one of 16 in the error
    assert wrong[-1] > 100 * wrong.min()
    assert np.abs(got.difference[0] - got.slope[0]) < 30 * wrong.min()


def test_directions_must_be_a_number():
    with pytest.raises(ValueError, match="directions must be at least 1, got 0"):
        check(problems.toy(), bx.Reverse(), directions=0)
