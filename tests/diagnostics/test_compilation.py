"""What is compiled goes with the functions that it was compiled for; nothing needs compilation."""

import jax
import jax.numpy as jnp
import optax
import pytest
from jax.tree_util import Partial
from memory_maps import MAPS, added

import bilevax as bx

SGD = optax.sgd(0.1)

CALLS = {
    "diagnose": lambda f, xi, lam: bx.diagnose(f, xi, lam, T=2, lanczos=1),
    "forecast": lambda f, xi, lam: bx.forecast(f, xi, lam, T=2, rules=[bx.Reverse(K=1)]),
    "check_gradient": lambda f, xi, lam: bx.check_gradient(
        f, xi, bx.Reverse(K=1), lam, T=2, key=jax.random.key(0), directions=1
    ),
}


def problem():
    g = lambda w, lam, S: jnp.sum((w - lam) ** 2)
    xi = bx.Descent(g, bx.constant(jnp.zeros(2)), optax.sgd(0.1))
    return lambda w, lam, S: jnp.sum(w**2), xi, jnp.ones(2)


@pytest.mark.slow
@pytest.mark.skipif(not MAPS.exists(), reason="Linux counts a process's memory maps")
@pytest.mark.parametrize("name", CALLS)
def test_memory_maps_do_not_grow_with_new_functions(name):
    """A compiled program holds a few dozen maps, of which Linux allows 65530 to a process."""
    assert added(lambda i: CALLS[name](*problem())) <= 10


@pytest.mark.slow
@pytest.mark.parametrize("name", CALLS)
def test_the_same_is_said_without_compilation(name):
    """As with JAX_DISABLE_JIT=1, which people set to look into their g."""
    args = problem()
    compiled = CALLS[name](*args)
    with jax.disable_jit():
        eager = CALLS[name](*args)
    said = lambda x: x.agrees if name == "check_gradient" else x.advice
    assert said(eager) == said(compiled)


def test_no_tracing_meets_an_array_from_outside():
    """JAX keeps something for each tracing in which one of its functions meets such an array."""
    met = []

    def start(w, lam, S):
        met.append(isinstance(w, jax.core.Tracer))
        return -w

    xi = bx.Descent(lambda w, lam, S: jnp.sum((w - lam) ** 2), Partial(start, jnp.ones(2)), SGD)
    bx.diagnose(lambda w, lam, S: jnp.sum(w**2), xi, jnp.ones(2), T=2, lanczos=0)
    assert met and all(met)
