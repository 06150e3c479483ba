"""A run goes on with its own settings, in any process, and with no other number in them."""

import json
import os
import subprocess
import sys

import equinox as eqx
import jax
import jax.numpy as jnp
import lineax as lx
import numpy as np
import optax
import pytest

import bilevax as bx
from bilevax._outer.batch import OuterProblem
from bilevax._outer.fingerprint import digest, fingerprint
from bilevax._outer.run import _first_state

SCALARS = "lam, S, key, sampler, f, g, start, inner rate, momentum, rate, b1, eps, decay, clip"
SCALARS = SCALARS.split(", ")


def settings(**numbers):
    """minimize's arguments, made of numbers, each of which stands somewhere else in them."""
    c = dict.fromkeys(SCALARS, 1.0) | numbers
    start = jnp.zeros(3)  # where penalties have no gradient
    g = lambda w, lam, S: jnp.sum((w - S) ** 2) + c["g"] * jnp.sum(jnp.exp(lam) * w**2)
    inner = optax.sgd(1e-3 * c["inner rate"], momentum=1e-7 * c["momentum"])
    draw = lambda S, key: S + c["sampler"] * jax.random.normal(key, S.shape)
    optimizer = optax.chain(
        optax.clip_by_global_norm(c["clip"]),
        optax.scale_by_adam(b1=1e-7 * c["b1"], eps=c["eps"]),
        optax.scale_by_schedule(optax.cosine_decay_schedule(1.0, int(1e7 * c["decay"]))),
        optax.scale(-c["rate"]),
    )
    return dict(
        f=lambda w, lam, S: c["f"] * jnp.sum((w - 1) ** 2),
        xi=bx.Descent(g, bx.constant(start + c["start"]), inner),
        rule=bx.Reverse(),
        lam=jnp.full(3, c["lam"]),
        T=3,
        optimizer=optimizer,
        contexts=jax.tree_util.Partial(draw, jnp.full(3, c["S"])),
        key=jax.random.key(int(1e6 * c["key"])),
    )


def run(path, **numbers):
    return bx.minimize(**settings(**numbers), steps=1, checkpoint=path, throw=False)


@pytest.mark.parametrize(
    "scale", [1.0, *(pytest.param(scale, marks=pytest.mark.slow) for scale in (1e-6, 1e6))]
)
def test_every_number_counts_at_every_scale(scale, tmp_path):
    numbers = dict.fromkeys(SCALARS, scale)
    run(tmp_path, **numbers)
    for name in SCALARS:
        with pytest.raises(bx.CheckpointMismatchError, match="holds another run"):
            run(tmp_path, **numbers | {name: 2 * scale})
    assert run(tmp_path, **numbers).step <= 1  # the same numbers in new functions


OPTIMIZERS = [
    (optax.adam(1e-4), optax.adam(8e-4)),
    (optax.sgd(2e-4), optax.sgd(1e-6)),
    (optax.adam(0.1), optax.adam(0.1, b1=0.8)),
    (optax.sgd(0.1, momentum=0.8), optax.sgd(0.1, momentum=0.9)),
]


@pytest.mark.parametrize("pair", OPTIMIZERS)
def test_what_the_norm_of_a_first_update_does_not_show(pair):
    one, other = (print_of(settings() | {"optimizer": optimizer}) for optimizer in pair)
    assert {name for name in one if one[name] != other[name]} == {"optimizer", "program"}


PROGRAM = """
import json, sys
import jax
jax.config.update("jax_enable_x64", True)
sys.path.insert(0, sys.argv[1])
from test_fingerprint import odd_settings, print_of
print(json.dumps(print_of(odd_settings())))
"""


def odd_settings():
    """With what a traced program may carry: callbacks, custom derivatives, branches, solvers."""
    data = np.linspace(0.0, 1.0, 30).reshape(10, 3)

    @jax.custom_jvp
    def soft(x):
        return jnp.log1p(jnp.exp(x))

    soft.defjvp(lambda x, t: (soft(*x), jax.nn.sigmoid(x[0]) * t[0]))

    def g(w, lam, S):
        jax.debug.callback(lambda x: None, w[0])
        penalty = jax.lax.cond(w[0] > 5, lambda w: jnp.sum(w**4), lambda w: jnp.sum(w**2), w)
        return jnp.mean(soft(jnp.asarray(data) @ w)) + jnp.exp(lam[0]) * penalty

    def f(w, lam, S):
        return jnp.sum(jax.nn.relu(eqx.error_if(w, w > 1e9, "too large")) ** 2) + jnp.sum(S)

    solver = lx.GMRES(rtol=1e-6, atol=1e-6)
    return dict(
        f=f,
        xi=bx.Descent(g, bx.constant(jnp.ones(3)), lambda lam: optax.adam(0.1 * jnp.exp(lam[1]))),
        rule=bx.Implicit(solver),
        lam=jnp.zeros(2),
        optimizer=optax.lbfgs(),
        contexts=lambda key: jax.random.normal(key, (2,)),
        key=jax.random.key(3),
    )


def print_of(given):
    """The fingerprint of a run with these settings, and some others."""
    given = given | dict(S=None, T=5, batch=2, at_once=2, warm_start=True, mesh=None, audits=None)
    lam, contexts = given.pop("lam"), given.pop("contexts")
    problem = OuterProblem(**given, draw=contexts)
    S = jax.eval_shape(contexts, given["key"])
    return fingerprint(problem, _first_state(problem, lam, S), S, None)


class Tag:
    """Its place in a set follows its hash, which for most objects is their address."""

    def __init__(self, name, hash_):
        self.name, self.hash = name, hash_

    def __hash__(self):
        return self.hash

    def __repr__(self):
        return self.name


def test_the_order_of_a_set_does_not_count():
    one, other = (frozenset({Tag("a", i), Tag("b", 1 - i)}) for i in (0, 1))
    assert repr(one) != repr(other)
    inside = lambda tags: Tag(f"operator(tags={tags})", 0)
    assert digest(inside(one)) == digest(inside(other))
    assert digest(inside(one)) != digest(inside(frozenset({Tag("a", 0), Tag("c", 1)})))


@pytest.mark.slow
def test_the_same_in_a_new_process():
    """Neither addresses nor the order of sets enter."""
    command = [sys.executable, "-c", PROGRAM, os.path.dirname(__file__)]
    environment = os.environ | {"PYTHONHASHSEED": "12345"}
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        here = print_of(odd_settings())
    out = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    there = json.loads(out.stdout.splitlines()[-1])
    assert there == json.loads(json.dumps(here))
