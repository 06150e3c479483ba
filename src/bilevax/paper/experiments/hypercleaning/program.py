"""Data hypercleaning (section 4.2.1 and its appendix): one weight for each training example.

    min_lam  CE(W_T; validation)
    W_T from T steps of gradient descent on  mean_i sigma(lam_i) CE_i(W) + c |W|^2

Sums in the paper's g are means here: a step size of 1 diverges on a sum of 5000 terms.
"""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, Int

from ...._dynamics import Descent, constant
from ...._hypergradient import hypergradient
from ...._outer.minimize import minimize
from ...._outer.step_size import scale_first_update
from ...._rules.reverse import Reverse
from ...._tree import norm
from ...data import digits, fashion_mnist, mnist
from ...records import Records
from .._corrected import parse_corrected
from .._cost import costs
from .._follow import follow
from .corrupt import Corrupted, corrupt
from .examples import THRESHOLD, examples

LOAD = {
    "mnist": mnist.load,
    "fashion-mnist": fashion_mnist.load,
    "digits": lambda data_dir: digits.load(),
}
THRESHOLDS = {"f1_4": -4.0, "f1_3": -3.0, "f1_1": -1.0}

KEYS = ("kind", "rule", "seed", "step")


@dataclass(frozen=True)
class Config:
    """Settings; the defaults are the paper's."""

    data: str = "mnist"
    train: int = 5000
    validation: int = 5000
    noise: float = 0.5
    T: int = 100
    gamma: float = 1.0
    weight_decay: float = 0.001
    rules: tuple[str, ...] = (
        "Reverse(K=5)",
        "Krylov(2, 4)",
        "Reverse(K=100)",
        "Reverse(K=1)",
        "Reverse(K=25)",
        "Reverse(K=50)",
    )
    steps: int = 1000
    """Hyper-iterations of Adam."""
    first: float = 0.3
    """Length of the first update, in a coordinate, whatever the rule: root mean square."""
    every: int = 25
    """Hyper-iterations between evaluations."""
    seed: int = 0
    preset: str = "paper"
    experiment: str = "hypercleaning"

    @classmethod
    def quick(cls) -> "Config":
        """scikit-learn's digits, 8 x 8: seconds."""
        rules = ("Reverse(K=1)", "Reverse(K=5)", "Krylov(2, 4)", "Reverse(K=100)")
        return cls(
            "digits", train=600, validation=400, rules=rules, steps=150, every=10, preset="quick"
        )


def loss(W: Float[Array, "C D"], x: Float[Array, "n D"], y: Int[Array, " n"]) -> Float[Array, " n"]:
    """Cross-entropy of each example. W is as in the paper, classes first: the layout in which
    both products of a gradient read x along its rows, which halves their time on a CPU.
    """
    return optax.softmax_cross_entropy_with_integer_labels(x @ W.T, y)


def g(W: Array, lam: Array, S: dict[str, Any]) -> Array:
    weighted = jax.nn.sigmoid(lam) * loss(W, S["x"], S["y"])
    return jnp.mean(weighted) + S["weight_decay"] * jnp.sum(W**2)


def f(W: Array, lam: Array, S: dict[str, Any]) -> Array:
    return jnp.mean(loss(W, S["x_val"], S["y_val"]))


def problem(data: Corrupted, config: Config) -> tuple[Descent, Array, dict[str, Array]]:
    """Dynamics, first lam, and context."""
    S = {k: jnp.asarray(v) for k, v in data._asdict().items()}
    S["weight_decay"] = jnp.asarray(config.weight_decay, S["x"].dtype)
    classes, features = int(data.y_val.max()) + 1, data.x.shape[1]
    start = constant(jnp.zeros((classes, features), S["x"].dtype))
    return Descent(g, start, optax.sgd(config.gamma)), jnp.zeros(len(data.x), S["x"].dtype), S


@jax.jit
def _measure(lam: Array, w: Array, h: Array, S: dict[str, Array]) -> dict[str, Array]:
    """Everything that Table 2, Figure 5 and the appendix show."""
    right = lambda x, y: jnp.mean(jnp.argmax(x @ w.T, axis=1).astype(y.dtype) == y)
    marked, wrong = lam < THRESHOLD, S["wrong"]
    return {
        "validation_loss": f(w, lam, S),
        "validation_accuracy": right(S["x_val"], S["y_val"]),
        "test_accuracy": right(S["x_test"], S["y_test"]),
        "gradient_norm": norm(h),
        "found": jnp.sum(marked & wrong),
        "false": jnp.sum(marked & ~wrong),
        "corrupted": jnp.sum(wrong),
    } | {name: f1(lam < limit, wrong) for name, limit in THRESHOLDS.items()}


def f1(marked: Array, wrong: Array) -> Array:
    """Harmonic mean of precision and recall; 0 if nothing is marked."""
    return 2 * jnp.sum(marked & wrong) / jnp.maximum(jnp.sum(marked) + jnp.sum(wrong), 1)


def load(config: Config, data_dir: str | None = None) -> Corrupted:
    """The data of a seed: all of the set, scaled to [0, 1], and a split of its own."""
    if config.data not in LOAD:
        raise ValueError(f"data {config.data!r} is not known; give one of {', '.join(LOAD)}.")
    sets = LOAD[config.data](data_dir)
    x = np.concatenate([sets.x_train, sets.x_test]).reshape(-1, sets.x_train[0].size)
    y = np.concatenate([sets.y_train, sets.y_test]).astype(np.int32)
    x = x.astype(np.float32) / x.max()
    return corrupt(x, y, config.train, config.validation, config.noise, config.seed)


def run(config: Config, out: Path, *, resume: bool = False, data_dir: str | None = None) -> None:
    """Every rule from the same start on the same data; records in `out`."""
    rules = {text: parse_corrected(text) for text in config.rules}
    xi, lam, S = problem(load(config, data_dir), config)
    exact = hypergradient(f, xi, Reverse(), T=config.T)
    adam = scale_first_update(optax.adam(1.0), config.first * len(lam) ** 0.5)

    def evaluate(lam: Array) -> dict[str, float]:
        _, h, w, _ = exact(lam, S)  # d_lam f itself, whatever rule the run follows
        return {k: float(v) for k, v in _measure(lam, w, h, S).items()}

    with Records(out, asdict(config), keys=KEYS, resume=resume) as records:
        for text, (rule, correction) in rules.items():
            log = follow(records, out, text, config.seed, config.steps)
            log.first(evaluate(lam))
            result = minimize(
                f, xi, rule, lam, T=config.T, steps=config.steps, optimizer=adam, S=S,
                correct=correction,
                evaluate=evaluate, evaluate_every=config.every,
                callback=log.write, checkpoint=log.checkpoints,
            )  # fmt: skip
            log.write(result)
            log.audits(result)
            if not records.has(kind="examples", rule=text, seed=config.seed, step=result.step):
                w = exact(result.lam, S).w
                log.examples(result.step, examples(result.lam, w, S))
        alone = {text: rule for text, (rule, correction) in rules.items() if not correction}
        costs(records, f, xi, alone, lam, S, config.T, {"seed": config.seed})
