"""Small learning problems: regression, classification, cleaning, representations."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array

from .._dynamics import Descent, constant
from ._problem import Problem


def _regression(n: int, D: int, seed: int) -> dict:
    """Noisy linear data, split in two, of which half of the inputs are irrelevant."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(2 * n, D))
    truth = rng.normal(size=D) * (np.arange(D) < D // 2)
    y = x @ truth + 0.5 * rng.normal(size=2 * n)
    x, y = jnp.asarray(x), jnp.asarray(y)
    return {"train": (x[:n], y[:n]), "val": (x[n:], y[n:]), "key": jax.random.key(seed)}


def ridge(n: int = 30, D: int = 6, T: int = 2000, seed: int = 0) -> Problem:
    """Ridge regression with one penalty exp(lam_j) for each weight.

    At the optimum everything is a linear system, so Eq. 11 is known in closed form.

    **Arguments:**

    - `n`: examples in the training set, and in the validation set.
    - `D`: the number of inputs, weights and hyperparameters.
    - `T`: the number of inner steps; 2000 reach the optimum to rounding.
    - `seed`: of the data.

    **Returns:**

    A `Problem`, with `limit`.

    !!! example

        >>> from bilevax import problems
        >>> p = problems.ridge(D=6)
        >>> p.limit(p.lam, p.S).shape  # what Implicit() should give
        (6,)
    """

    def g(w, lam, S):
        x, y = S["train"]
        return jnp.mean((x @ w - y) ** 2) / 2 + jnp.sum(jnp.exp(lam) * w**2) / 2

    def f(w, lam, S):
        x, y = S["val"]
        return jnp.mean((x @ w - y) ** 2) / 2

    def limit(lam, S):
        x, y = S["train"]
        H = x.T @ x / x.shape[0] + jnp.diag(jnp.exp(lam))
        w = jnp.linalg.solve(H, x.T @ y / x.shape[0])
        alpha = jax.grad(f)(w, lam, S)
        return -jnp.exp(lam) * w * jnp.linalg.solve(H, alpha)

    xi = Descent(g, constant(jnp.zeros(D)), optax.sgd(0.3))
    S, lam = _regression(n, D, seed), jnp.full(D, -1.0)
    return Problem("ridge", f, xi, lam, S, T, limit=limit)


def _classes(n: int, D: int, C: int, noise: float, seed: int) -> dict:
    """C Gaussian clusters, split in two; a part of the training labels is random."""
    rng = np.random.default_rng(seed)
    centres = 1.5 * rng.normal(size=(C, D))
    y = rng.integers(C, size=2 * n)
    x = centres[y] + rng.normal(size=(2 * n, D))
    given = np.where(rng.random(n) < noise, rng.integers(C, size=n), y[:n])
    x, labels = jnp.asarray(x), jnp.asarray(np.concatenate([given, y[n:]]))
    return {
        "train": (x[:n], labels[:n]),
        "val": (x[n:], labels[n:]),
        "true": jnp.asarray(y[:n]),
        "key": jax.random.key(seed),
    }


def _cross_entropy(logits: Array, y: Array) -> Array:
    return -jnp.take_along_axis(jax.nn.log_softmax(logits), y[:, None], axis=1)[:, 0]


def logistic(n: int = 40, D: int = 5, T: int = 60, seed: int = 0) -> Problem:
    """Logistic regression with one penalty exp(lam_j) for each input.

    **Arguments:**

    - `n`: examples in the training set, and in the validation set.
    - `D`: the number of inputs.
    - `T`: the number of inner steps.
    - `seed`: of the data.

    **Returns:**

    A `Problem`.

    !!! example

        >>> from bilevax import problems
        >>> problems.logistic(D=5).lam.shape
        (5,)
    """

    def loss(w, x, y):
        return jnp.mean(jax.nn.softplus(-(2 * y - 1) * (x @ w["slope"] + w["offset"])))

    def g(w, lam, S):
        return loss(w, *S["train"]) + jnp.sum(jnp.exp(lam) * w["slope"] ** 2)

    w_0 = {"slope": jnp.zeros(D), "offset": jnp.zeros(())}
    xi = Descent(g, constant(w_0), optax.sgd(0.5))
    S = _classes(n, D, 2, 0.0, seed)
    as_float = lambda pair: (pair[0], pair[1].astype(pair[0].dtype))
    S = S | {"train": as_float(S["train"]), "val": as_float(S["val"])}
    f = lambda w, lam, S: loss(w, *S["val"])
    return Problem("logistic", f, xi, jnp.full(D, -2.0), S, T)


def reweighting(
    n: int = 60, D: int = 4, C: int = 3, T: int = 50, noise: float = 0.5, seed: int = 0
) -> Problem:
    """Data hypercleaning in small: one weight sigmoid(lam_i) for each training example.

    **Arguments:**

    - `n`: examples in the training set, and in the validation set.
    - `D`: the number of inputs.
    - `C`: the number of classes.
    - `T`: the number of inner steps.
    - `noise`: the part of the training labels that is replaced by random ones.
    - `seed`: of the data.

    **Returns:**

    A `Problem`.

    !!! example

        >>> from bilevax import problems
        >>> p = problems.reweighting(n=60)
        >>> wrong = p.S["train"][1] != p.S["true"]  # whose weights should fall
        >>> p.lam.shape, wrong.shape
        ((60,), (60,))
    """

    def g(w, lam, S):
        x, y, example = S["train"]  # a minibatch knows which examples it holds
        weight = jax.nn.sigmoid(lam)[example]
        return jnp.mean(weight * _cross_entropy(x @ w, y)) + 0.01 * jnp.sum(w**2)

    def f(w, lam, S):
        return jnp.mean(_cross_entropy(S["val"][0] @ w, S["val"][1]))

    S = _classes(n, D, C, noise, seed)
    S = S | {"train": (*S["train"], jnp.arange(n))}
    xi = Descent(g, constant(jnp.zeros((D, C))), optax.sgd(0.5))
    return Problem("reweighting", f, xi, jnp.zeros(n), S, T)


def hyper_representation(
    n: int = 30, D: int = 6, R: int = 3, C: int = 3, T: int = 30, seed: int = 0
) -> Problem:
    """A shared representation tanh(x lam) under a linear classifier w.

    f depends on lam directly, and so does the start of w: every term of Eq. 5 counts.

    **Arguments:**

    - `n`: examples in the training set, and in the validation set.
    - `D`: the number of inputs.
    - `R`: the dimension of the representation.
    - `C`: the number of classes.
    - `T`: the number of inner steps.
    - `seed`: of the data and of lam.

    **Returns:**

    A `Problem`.

    !!! example

        >>> from bilevax import problems
        >>> sorted(problems.hyper_representation().lam)
        ['layer', 'penalty', 'start']
    """

    def loss(w, lam, x, y):
        return jnp.mean(_cross_entropy(jnp.tanh(x @ lam["layer"]) @ w["W"] + w["b"][None], y))

    def g(w, lam, S):
        distance = jnp.sum((w["W"] - lam["start"]) ** 2) + jnp.sum(w["b"] ** 2)
        return loss(w, lam, *S["train"]) + jnp.exp(lam["penalty"]) * distance

    rng = np.random.default_rng(seed)
    lam = {
        "layer": jnp.asarray(rng.normal(size=(D, R)) / np.sqrt(D)),
        "start": jnp.asarray(0.1 * rng.normal(size=(R, C))),
        "penalty": jnp.asarray(-3.0),
    }
    init = lambda lam, S: {"W": lam["start"], "b": jnp.zeros(C)}
    xi = Descent(g, init, optax.sgd(0.5))
    f = lambda w, lam, S: loss(w, lam, *S["val"])
    return Problem("hyper_representation", f, xi, lam, _classes(n, D, C, 0.0, seed), T)
