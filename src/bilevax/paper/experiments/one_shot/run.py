"""One-shot classification (section 4.3 and its appendix): a character from one drawing of it.

    min_lam  E_S CE(w_T; query drawings of task S)
    w_T from T steps on  CE(w; one drawing a class) + sum_j rho_j |w_j - c_j|^2,  w_0 = c

lam = {two convolutions, c, rho, gamma}; see `_network`.

Batch normalisation has no memory: a batch is normalised by its own mean and variance
(epsilon 1e-3), the support drawings of a task by theirs and its query drawings by theirs, in
training and in testing. A test drawing is so judged in the company of the others of its task,
which is transductive, as it is in the code of MAML.
"""

import math
import re
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array

from .... import _tree as tree
from ...._hypergradient import hypergradient, solve
from ...._models.episodes import Sampler, Task, split
from ...._models.one_shot import Hyper, cross_entropy, dynamics, f, first_lam, query, slowing_adam
from ...._outer.minimize import minimize
from ...._rules.base import AbstractRule
from ...._rules.parse import parse_rule
from ...._rules.reverse import Reverse
from ....diagnostics import diagnose
from ...data import glyphs, omniglot
from ...records import Records
from .._cost import costs
from .._follow import Numbers, follow

LOAD = {
    "omniglot": lambda data_dir: omniglot.load(data_dir, size=28).images,
    "glyphs": lambda data_dir: glyphs.load(characters=140),
}
XI = dynamics()
KEYS = ("kind", "rule", "seed", "step", "objective", "K")
NOTHING = -80.0
"""A logarithm of rho for which rho is 0 to every digit."""


@dataclass(frozen=True)
class Config:
    """Settings; the defaults are the paper's, but for what docs/reproduction.md says."""

    data: str = "omniglot"
    train: int = 1200
    """Characters to learn from; as many for settings as the next says, the rest for testing."""
    validation: int = 100
    ways: int = 5
    shots: int = 1
    queries: int = 15
    filters: int = 64
    T: int = 50
    rules: tuple[str, ...] = (
        "Reverse(K=10)",
        "Reverse(K=1)",
        "Krylov(2, 4)",
        "Reverse(K=25)",
        "Reverse()",
        "T=1",
    )
    """Rules, or "T=1": full back-propagation through a shorter horizon."""
    steps: int = 5000
    """Hyper-iterations of Adam."""
    batch: int = 4
    """Tasks in a hyper-iteration,"""
    at_once: int = 1
    """of which so many go through vmap together."""
    rate: float = 0.003
    """Of Adam; it falls to a hundredth as half a cosine."""
    slow: float = 0.1
    """The rates of log rho and log gamma are smaller by this factor."""
    rho: float = 0.0025
    gamma: float = 0.4
    strong: float = 0.1
    """Another rho, at which the error of truncation is looked at in the end."""
    every: int = 250
    """Hyper-iterations between evaluations."""
    episodes: int = 120
    """Test tasks in an evaluation, the same in all; and a third as many for validation."""
    seed: int = 0
    preset: str = "paper"
    experiment: str = "one-shot"

    @classmethod
    def quick(cls) -> "Config":
        """Invented characters, a small network, a short horizon; most of it is compilation."""
        return cls(
            "glyphs", train=80, validation=20, queries=5, filters=8, T=10, steps=80, every=40,
            episodes=40, batch=2, rate=0.01, strong=0.25, preset="quick",
            rules=("Reverse(K=5)", "Reverse()"),
        )  # fmt: skip


class Plan(NamedTuple):
    """How one row of Table 4 is differentiated, and through how many steps."""

    rule: AbstractRule
    T: int | None


def read_rule(text: str) -> Plan:
    """A rule, or "T=1" for all of a shorter horizon."""
    short = re.fullmatch(r"\s*T\s*=\s*([1-9]\d*)\s*", text)
    return Plan(Reverse(), int(short[1])) if short else Plan(parse_rule(text), None)


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


@eqx.filter_jit
def judge(lam: Hyper, tasks: Task, T: int, at_once: int) -> tuple[Array, Array]:
    """Accuracy and loss on the query drawings of each of many tasks, after T steps on it."""

    def one(S: Task) -> tuple[Array, Array]:
        logits = query(solve(XI, lam, S, T=T), lam, S)
        right = jnp.argmax(logits, axis=1).astype(S.y_val.dtype) == S.y_val
        return jnp.mean(right), cross_entropy(logits, S.y_val)

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

    def costs(self, records: Records, plans: dict[str, Plan]) -> None:
        """Of one task's hypergradient, at the first lam."""
        S = jax.tree.map(lambda a: a[0], self.tasks)
        for horizon in {plan.T for plan in plans.values()}:
            rules = {text: plan.rule for text, plan in plans.items() if horizon == plan.T}
            T = horizon or self.config.T
            costs(records, f, XI, rules, self.lam, S, T, {"seed": self.config.seed})

    def _errors(self, lam: Hyper, i: int, T: int) -> np.ndarray:
        S = jax.tree.map(lambda a: a[i], self.tasks)
        return diagnose(f, XI, lam, S, T=T, lanczos=0).error


def run(config: Config, out: Path, *, resume: bool = False, data_dir: str | None = None) -> None:
    """Every rule from the same start on the same tasks; records in `out`."""
    plans = {text: read_rule(text) for text in config.rules}
    study = Study(config, data_dir)
    adam = slowing_adam(config.steps, config.rate, config.slow)
    with Records(out, asdict(config), keys=KEYS, resume=resume) as records:
        for text, (rule, horizon) in plans.items():
            T = horizon or config.T
            evaluate = partial(study.evaluate, rule, T)
            watch = follow(records, out, text, config.seed, config.steps)
            if not records.has(kind="evaluation", rule=text, seed=config.seed, step=0):
                watch.first(evaluate(study.lam))
            result = minimize(
                f, XI, rule, study.lam, T=T, steps=config.steps, optimizer=adam,
                contexts=study.samplers.train, key=study.key, batch=config.batch,
                at_once=config.at_once, evaluate=watch.keep(evaluate), evaluate_every=config.every,
                callback=watch.write, checkpoint=watch.checkpoints,
            )  # fmt: skip
            watch.complete(result)
            if horizon is None:  # a shorter horizon is there to be cheap, not to be cut
                study.depths(records, text, T, result.lam)
        study.costs(records, plans)
