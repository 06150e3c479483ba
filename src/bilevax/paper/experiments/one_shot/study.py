"""What the rules of one-shot classification share: tasks, the first lam, and how lam is judged."""

import math
from collections.abc import Mapping
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array

from .... import _tree as tree
from ...._hypergradient import hypergradient
from ...._models.episodes import Sampler, Task
from ...._models.one_shot import Hyper, dynamics, f, first_lam, query
from ...._models.rows import cross_entropy
from ...._rules.base import AbstractRule
from ...._rules.reverse import Reverse
from ...._solve import solve
from ....diagnostics import diagnose
from ...data import glyphs, omniglot
from ...records import Records
from .._cost import costs
from .._follow import Numbers
from .config import Config

LOAD = {
    "omniglot": lambda data_dir: omniglot.load(data_dir, size=28).images,
    "glyphs": lambda data_dir: glyphs.load(characters=140),
}
XI = dynamics()
NOTHING = -80.0
"""A logarithm of rho for which rho is 0 to every digit."""


FINAL = 1000
"""Test tasks by which the last lam is judged; fewer, where evaluations have few."""


class Plan(NamedTuple):
    """How one row of Table 4 is differentiated, and through how many steps."""

    rule: AbstractRule
    T: int | None


class Samplers(NamedTuple):
    """Tasks of characters that no other part has."""

    train: Sampler
    validation: Sampler
    test: Sampler


def load(config: Config, data_dir: str | None = None) -> Samplers:
    """Where the tasks of a seed come from."""
    if config.data not in LOAD:
        raise ValueError(f"data {config.data!r} is not known; give one of {', '.join(LOAD)}.")
    parts = split(LOAD[config.data](data_dir), (config.train, config.validation), config.seed)
    sizes = config.ways, config.shots, config.queries
    return Samplers(*(Sampler(part, *sizes) for part in parts))


def split(
    images: np.ndarray, sizes: tuple[int, int], seed: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Random characters of (characters, drawings, h, w) for training and for choosing settings,
    in these numbers, and all others for testing.
    """
    train, validation = sizes
    if train + validation >= len(images):
        raise ValueError(f"{len(images)} characters cannot be split into {sizes} and a test set.")
    order = np.random.default_rng(seed).permutation(len(images))
    a, b, c = np.split(order, [train, train + validation])
    return images[a], images[b], images[c]


@eqx.filter_jit
def judge(lam: Hyper, tasks: Task, T: int, at_once: int) -> tuple[Array, Array]:
    """Accuracy and loss on the query drawings of each of many tasks, after T steps on it."""

    def one(S: Task) -> tuple[Array, Array]:
        logits = query(solve(XI, lam, S, T=T), lam, S)
        right = jnp.argmax(logits, axis=1).astype(S.y_val.dtype) == S.y_val
        return jnp.mean(right), jnp.mean(cross_entropy(logits, S.y_val))

    return lax.map(one, tasks, batch_size=at_once if at_once > 1 else None)


@eqx.filter_jit
def mean_h(lam: Hyper, tasks: Task, rule: AbstractRule, T: int) -> Hyper:
    """The mean hypergradient of some tasks."""
    h = lax.map(lambda S: hypergradient(f, XI, rule, T=T)(lam, S).h, tasks)
    return jax.tree.map(lambda a: jnp.mean(a, axis=0), h)


@jax.jit
def cosine(a: Hyper, b: Hyper) -> Array:
    return tree.dot(a, b) / tree.positive(tree.norm(a) * tree.norm(b))


class Study:
    """What is the same for all rules of a run: tasks, first lam, and how lam is judged."""

    def __init__(self, config: Config, data_dir: str | None):
        self.config, self.samplers = config, load(config, data_dir)
        keys = jax.random.split(jax.random.key(config.seed), 5)
        self.lam = first_lam(keys[0], config.ways, config.filters, config.rho, config.gamma)
        self.key = keys[1]
        draw = lambda sampler, key, n: jax.vmap(sampler)(jax.random.split(key, n))
        test = draw(self.samplers.test, keys[2], config.episodes)
        self._final_key = jax.random.fold_in(keys[2], 1)
        validation = draw(self.samplers.validation, keys[3], max(config.episodes // 3, 1))
        self.judged = jax.tree.map(lambda *both: jnp.concatenate(both), test, validation)
        self.tasks = jax.vmap(self.samplers.train)(jax.random.split(keys[4], config.batch))

    def evaluate(self, rule: AbstractRule, T: int, lam: Hyper) -> Numbers:
        accuracy, loss = judge(lam, self.judged, T, self.config.at_once)  # one program for both
        n = self.config.episodes
        numbers = {
            "test_accuracy": jnp.mean(accuracy[:n]),
            "validation_accuracy": jnp.mean(accuracy[n:]),
            "validation_loss": jnp.mean(loss[n:]),
            "cosine": self._cosine(rule, T, lam),
            "gamma": jnp.exp(lam["gamma"]),
        }
        return {name: float(value) for name, value in numbers.items()}

    def _cosine(self, rule: AbstractRule, T: int, lam: Hyper) -> Array | float:
        if rule == Reverse():
            return 1.0
        return cosine(*(mean_h(lam, self.tasks, r, T) for r in (rule, Reverse())))

    def final(self, records: Records, text: str, T: int, lam: Hyper) -> None:
        """The accuracy of the last lam on other and more test tasks than an evaluation has."""
        label = {"kind": "final", "rule": text, "seed": self.config.seed, "step": self.config.steps}
        if records.has(**label):
            return
        tasks, at_once = min(FINAL, 10 * self.config.episodes), len(self.judged.y)
        draw = lambda key: jax.vmap(self.samplers.test)(jax.random.split(key, at_once))
        keys = jax.random.split(self._final_key, math.ceil(tasks / at_once))
        parts = [judge(lam, draw(key), T, self.config.at_once)[0] for key in keys]
        accuracy = np.concatenate(parts)[:tasks]
        error = accuracy.std(ddof=1) / tasks**0.5
        records.add(**label, tasks=tasks, test_accuracy=accuracy.mean(), standard_error=error)

    def depths(self, records: Records, text: str, T: int, lam: Hyper) -> None:
        """|h_{T-K} - h| / |h| for every K, mean over tasks: with rho as it was learned, and
        with rho put to nothing, and to something that makes a step contract.
        """
        label = {"kind": "depth", "rule": text, "seed": self.config.seed}
        at = lambda log: lam | {"rho": jax.tree.map(lambda a: jnp.full_like(a, log), lam["rho"])}
        strong = f"rho = {self.config.strong:g}"
        lams = {
            "regularised": lam,
            "rho = 0": at(NOTHING),
            strong: at(math.log(self.config.strong)),
        }
        for objective, changed in lams.items():
            label["objective"] = objective
            if not records.has(**label, K=T):
                tasks = range(self.config.batch)
                error = np.mean([self._errors(changed, i, T) for i in tasks], axis=0)
                records.extend(label | {"K": K, "error": e} for K, e in enumerate(error, 1))

    def costs(self, records: Records, plans: Mapping[str, Plan]) -> None:
        """Of one task's hypergradient, at the first lam."""
        S = jax.tree.map(lambda a: a[0], self.tasks)
        for horizon in {plan.T for plan in plans.values()}:
            rules = {text: plan.rule for text, plan in plans.items() if horizon == plan.T}
            T = horizon or self.config.T
            costs(records, f, XI, rules, self.lam, S, T, {"seed": self.config.seed})

    def _errors(self, lam: Hyper, i: int, T: int) -> np.ndarray:
        S = jax.tree.map(lambda a: a[i], self.tasks)
        return diagnose(f, XI, lam, S, T=T, lanczos=0).error
