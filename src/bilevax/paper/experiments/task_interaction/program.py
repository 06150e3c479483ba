"""Task interaction (section 4.2.2 and its appendix): which classes should learn from each other?

    min_lam  CE(W_T; validation)
    W_T from T steps of gradient descent on
        mean CE(W; training) + sum_ij C_ij |w_i - w_j|^2 + rho sum_v |w_v|^2

All trials run in one program; each is stopped by itself.
"""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array

from ...._hypergradient import hypergradient
from ...._models.interaction import dynamics, f, first_lam, interaction
from ...._outer.audits import Correction
from ...._outer.minimize import minimize
from ...._rules.base import AbstractRule
from ...._rules.reverse import Reverse
from ...._types import Hyper
from ...records import Records, Row
from .._corrected import parse_corrected
from .._cost import costs
from .._follow import announce, as_file
from .best import Stall
from .sample import Sample, load
from .scores import TrialLog, scores
from .trials import Each, Trials, total

KEYS = ("kind", "data", "rule", "trial", "step", "y")


@dataclass(frozen=True)
class Config:
    """Settings; the defaults are the paper's, but for what docs/reproduction.md says.

    A tuple that goes with `data` has an entry for each set.
    """

    data: tuple[str, ...] = ("cifar10", "cifar100")
    m: tuple[int, ...] = (50, 300)
    """Training examples, and validation examples, in all."""
    T: int = 100
    gamma: float = 0.1
    trials: int = 10
    rules: tuple[str, ...] = (
        "Reverse(K=1)",
        "Reverse(K=5)",
        "Reverse(K=25)",
        "Reverse(K=100)",
        "Krylov(2, 4)",
    )
    scale: float = 20.0
    """Root mean square of the length of a feature vector, once centred."""
    first: float = 1e-4
    """C_ij and rho at the start."""
    rate: float = 0.05
    """Step size of Adam."""
    steps: tuple[int, ...] = (2000, 300)
    """The most hyper-iterations."""
    patience: int = 500
    """A trial stops after so many without improvement."""
    every: int = 25
    """Hyper-iterations between evaluations."""
    stop_on_test: bool = False
    """Stop on test accuracy, as the paper did: what it then reports is not of unseen data."""
    seed: int = 0
    preset: str = "paper"
    experiment: str = "task-interaction"

    @classmethod
    def quick(cls) -> "Config":
        """Six Gaussian classes in three pairs: seconds."""
        return cls(
            data=("pairs",), m=(60,), T=50, trials=4, scale=4.0, first=1e-3, rate=0.1,
            rules=("Reverse(K=1)", "Krylov(2, 4)", "Reverse(K=50)"),
            steps=(75,), patience=50, preset="quick",
        )  # fmt: skip

    @property
    def criterion(self) -> str:
        return "test_accuracy" if self.stop_on_test else "validation_accuracy"


def run(config: Config, out: Path, *, resume: bool = False, data_dir: str | None = None) -> None:
    """Every set and every rule, from one start; records in `out`."""
    rules = {text: parse_corrected(text) for text in config.rules}
    take = lambda i: load(
        config.data[i], data_dir, config.m[i], config.trials, config.scale, config.seed
    )
    samples = [take(i) for i in range(len(config.data))]  # what is missing is said at once
    with Records(out, asdict(config), keys=KEYS, resume=resume) as records:
        for i, sample in enumerate(samples):
            part = _Part(config, i, sample, records, out)
            for text, (rule, correction) in rules.items():
                part.follow(text, rule, correction)
            part.cost({text: rule for text, (rule, corrected) in rules.items() if not corrected})


class _Part:
    """One data set."""

    def __init__(self, config: Config, i: int, sample: Sample, records: Records, out: Path):
        self.config, self.i, self.sample, self.records = config, i, sample, records
        self.name, classes = config.data[i], len(sample.names)
        self.folder = out / "checkpoints" / self.name
        self.xi, self.f = Trials(dynamics(config.gamma, classes)), total(f)
        one = first_lam(classes, config.first, config.first, sample.x.dtype)
        self.lam = jax.tree.map(lambda a: jnp.stack([a] * config.trials), one)
        named = {"names": list(sample.names), "source": sample.source}
        records.add(kind="classes", data=self.name, **named)

    def follow(self, text: str, rule: AbstractRule, correction: Correction | None) -> None:
        """One rule, until every trial has stalled."""
        if correction:
            exact = Each(Reverse(segment=round(self.config.T**0.5)))
            correction = Correction(exact, correction.share)
        steps, label = self.config.steps[self.i], {"data": self.name, "rule": text}
        if self.records.has(kind="interaction", **label, y=len(self.sample.names) - 1):
            return  # that is the last row of a rule
        announce(f"{self.name}, {text}: up to {steps} hyper-iterations")
        folder = self.folder / as_file(text)
        log = TrialLog(self.records, label, self._measure(rule), self.config.criterion)
        best = folder.with_name(folder.name + ".npz")
        stall = log.begin(best, self.lam, self.config.patience)
        if stall.step < steps and not stall.stalled.all():
            result = minimize(
                self.f, self.xi, Each(rule), self.lam, T=self.config.T, steps=steps,
                optimizer=optax.adam(self.config.rate), S=self.sample.S,
                evaluate=log.evaluate, evaluate_every=self.config.every,
                callback=log.callback, checkpoint=folder, correct=correction,
            )  # fmt: skip
            log.complete(result)
        self._end(label, stall, log.numbers(stall.lam))

    def _measure(self, rule: AbstractRule) -> Callable[[Hyper], dict[str, Array]]:
        exact = hypergradient(self.f, self.xi, Each(Reverse()), T=self.config.T)
        own = hypergradient(self.f, self.xi, Each(rule), T=self.config.T)
        S = self.sample.S

        def measure(lam: Hyper) -> dict[str, Array]:
            _, h, V, _ = exact(lam, S)
            return scores(V, h, own(lam, S).h, self.sample)

        return measure

    def _end(self, label: Row, stall: Stall, numbers: dict[str, np.ndarray]) -> None:
        """What each trial is worth where its criterion was best, and the C it has there."""
        accuracies = {k: numbers[k] for k in ("test_accuracy", "validation_accuracy")}
        stops = [
            {"kind": "stop", **label, "trial": i, "step": stall.ends[i]}
            | {"best_step": stall.best[i], "criterion": self.config.criterion}
            | {k: values[i] for k, values in accuracies.items()}
            for i in range(self.config.trials)
        ]
        C = np.mean(jax.vmap(lambda lam: interaction(lam)[0])(stall.lam), axis=0)
        learned = [{"kind": "interaction", **label, "y": y, "C": row} for y, row in enumerate(C)]
        self.records.extend(stops + learned)

    def cost(self, rules: dict[str, AbstractRule]) -> None:
        each = {text: Each(rule) for text, rule in rules.items()}
        label = {"data": self.name}
        costs(self.records, self.f, self.xi, each, self.lam, self.sample.S, self.config.T, label)
