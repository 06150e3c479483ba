"""Data of task interaction: small balanced samples of features, the rest for testing."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from ...._models.interaction import Trial, trial
from ...data import Split, cifar10, cifar100
from .._balanced import balanced

LOAD = {
    "cifar10": cifar10.features,
    "cifar100": cifar100.features,
    "pairs": lambda data_dir: pairs(),
}


class Sample(NamedTuple):
    """Ten trials, say, stacked along the first axis, on one table of features."""

    S: Trial
    X: Float[Array, "trials m D"]
    """Training features: W = V' X."""
    x: Float[Array, "n D"]
    y: Int[Array, " n"]
    test: Bool[Array, "trials n"]
    names: tuple[str, ...]
    source: str


def load(name: str, data_dir: str | None, m: int, trials: int, scale: float, seed: int) -> Sample:
    """`trials` independent splits."""
    if name not in LOAD:
        raise ValueError(f"data {name!r} is not known; give one of {', '.join(LOAD)}.")
    split = LOAD[name](data_dir)
    x = prepared(np.concatenate([split.x_train, split.x_test]), scale)
    y = np.concatenate([split.y_train, split.y_test]).astype(np.int32)
    parts, test = [], np.zeros((trials, len(y)), bool)
    for i in range(trials):
        rows, rows_val, rest = balanced(y, (m, m), np.random.default_rng([seed, i]))
        parts.append(trial(x, y, rows, rows_val))
        test[i, rest] = True
    S, X = jax.tree.map(lambda *a: jnp.stack(a), *parts)
    known = jnp.asarray(x), jnp.asarray(y), jnp.asarray(test)
    return Sample(S, X, *known, split.names, split.source)


def prepared(x: np.ndarray, scale: float) -> np.ndarray:
    """Centred, of mean squared norm scale^2, with the constant input of the bias.

    The centre and the length are those of all features, which no label enters.
    """
    x = x.astype(np.float32) - x.mean(0, dtype=np.float32)
    x *= scale / np.sqrt(np.mean(np.sum(x**2, axis=1)))
    return np.concatenate([x, np.ones((len(x), 1), np.float32)], axis=1)


def pairs(classes: int = 6, D: int = 12, n: int = 1200) -> Split:
    """Gaussian classes that come in pairs: near one another, far from the rest."""
    rng = np.random.default_rng(0)
    far = np.repeat(rng.normal(size=(classes // 2, D)), 2, axis=0)
    means = far + 0.15 * rng.normal(size=(classes, D))
    y = np.arange(n, dtype=np.int32) % classes
    x = (means[y] + rng.normal(size=(n, D))).astype(np.float32)
    names = tuple(f"{letter}{i}" for letter in "abc" for i in (1, 2))
    half = n // 2
    source = f"{classes} Gaussian classes in pairs, {n} examples, made up"
    return Split(x[:half], y[:half], x[half:], y[half:], names, source)
