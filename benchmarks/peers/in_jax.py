"""The losses of the problems in JAX, and how a function of (lam, S) becomes a `Program`."""

import time
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import lax

from bilevax._models import one_shot as omniglot
from bilevax._models.episodes import Task

from .problems import Adam, Problem
from .wants import Program

cross_entropy = optax.softmax_cross_entropy_with_integer_labels


class Model(NamedTuple):
    """g and f; `prepare` is computed once before the inner loop, which sees only mu."""

    prepare: Callable[[Any, Any], Any]
    start: Callable[[Any], Any]
    optimizer: Callable[[Any], optax.GradientTransformation]
    g: Callable[[Any, Any, Any], jax.Array]
    f: Callable[[Any, Any, Any], jax.Array]


def _nested(flat: dict[str, Any]) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for path, leaf in flat.items():
        *folders, name = path.split("/")
        at = out
        for folder in folders:
            at = at.setdefault(folder, {})
        at[name] = leaf
    return out


def _cleaning_g(w, lam, S):
    weighted = jax.nn.sigmoid(lam["weights"]) * cross_entropy(S["x"] @ w["W"].T, S["y"])
    return jnp.mean(weighted) + 0.001 * jnp.sum(w["W"] ** 2)


def _cleaning_f(w, lam, S):
    return jnp.mean(cross_entropy(S["x_val"] @ w["W"].T, S["y_val"]))


def _classify(w, x):
    return jnp.tanh(x @ w["inner"].T + w["bias"][None]) @ w["outer"].T


def _network_g(w, lam, S):
    weighted = jax.nn.sigmoid(lam["weights"]) * cross_entropy(_classify(w, S["x"]), S["y"])
    inner, outer = jnp.exp(lam["penalty"])
    return jnp.mean(weighted) + inner * jnp.sum(w["inner"] ** 2) + outer * jnp.sum(w["outer"] ** 2)


def _network_f(w, lam, S):
    return jnp.mean(cross_entropy(_classify(w, S["x_val"]), S["y_val"]))


def _toy_g(w, lam, S):
    return (w["w"] - lam["centre"]) @ S["G"] @ (w["w"] - lam["centre"]) / 2


def _toy_f(w, lam, S):
    return jnp.sum(w["w"] ** 2) + 10 * jnp.sum(jnp.sin(w["w"]) ** 2)


LOSSES = {
    "hypercleaning": (_cleaning_g, _cleaning_f),
    "MLP, Adam": (_network_g, _network_f),
    "toy": (_toy_g, _toy_f),
}


def model(problem: Problem) -> Model:
    if problem.name == "Omniglot":
        return Model(
            prepare=lambda lam, S: omniglot.prepare(_nested(lam), Task(**S)),
            start=lambda mu: mu["c"],
            optimizer=lambda mu: optax.sgd(mu["gamma"]),
            g=lambda w, mu, S: omniglot.g(w, mu, Task(**S)),
            f=lambda w, lam, S: omniglot.f(w, _nested(lam), Task(**S)),
        )
    inner, w_0 = problem.inner, jax.tree.map(jnp.asarray, problem.w)
    if isinstance(inner, Adam):
        optimizer = optax.adam(inner.rate, *inner.betas, eps=inner.eps)
    else:
        optimizer = optax.sgd(inner.rate)
    g, f = LOSSES[problem.name]
    return Model(lambda lam, S: lam, lambda mu: w_0, lambda mu: optimizer, g, f)


def program(problem: Problem, one: Callable[[Any, Any], Any]) -> Program:
    """`one` is (lam, S) -> h; the tasks follow one another in one compiled program."""
    lam = jax.tree.map(jnp.asarray, problem.lam)
    if len(problem.tasks) == 1:
        tasks, every = jax.tree.map(jnp.asarray, problem.tasks[0]), one
    else:
        tasks = jax.tree.map(lambda *a: jnp.stack([*map(jnp.asarray, a)]), *problem.tasks)
        mean = lambda h: jax.tree.map(lambda a: jnp.mean(a, 0), h)
        every = lambda lam, tasks: mean(lax.map(lambda S: one(lam, S), tasks))
    begin, jitted = time.perf_counter(), jax.jit(every)
    compiled = jitted.lower(lam, tasks).compile()
    seconds = time.perf_counter() - begin
    run = lambda: jax.block_until_ready(jitted(lam, tasks))  # what was compiled, as users call it
    read = lambda h: {k: np.asarray(a) for k, a in h.items()}
    allocated = compiled.memory_analysis()
    memory = allocated.temp_size_in_bytes + allocated.output_size_in_bytes
    return Program(run, read, seconds, memory)
