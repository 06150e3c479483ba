"""What is measured of each trial while task interaction is learned."""

from collections.abc import Callable, Iterator
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from .... import _tree as tree
from ...._models.interaction import f
from ...._outer.minimize import Result
from ...._outer.progress import Progress
from ...._types import Hyper
from ...records import Records, Row
from .._follow import evaluations
from .best import Stall
from .sample import Sample


@eqx.filter_jit
def scores(V: Array, h: Hyper, own: Hyper, sample: Sample) -> dict[str, Array]:
    """What Table 3 and Figure 6 show, of each trial; h is the true hypergradient."""
    S = sample.S
    right = lambda logits, y: jnp.argmax(logits, axis=-1).astype(y.dtype) == y

    def test(one):
        V, X, part = one
        found = right(sample.x @ (V.T @ X).T, sample.y)
        return jnp.sum(found & part) / jnp.sum(part)

    dot, norm = jax.vmap(tree.dot), jax.vmap(tree.norm)
    validation = jax.vmap(lambda V, S: jnp.mean(right(S.across @ V, S.y_val)))(V, S)
    return {
        "validation_loss": jax.vmap(lambda V, S: f(V, {}, S))(V, S),
        "validation_accuracy": validation,
        "test_accuracy": jax.lax.map(test, (V, sample.X, sample.test)),
        "gradient_norm": norm(h),
        "cosine": dot(h, own) / tree.positive(norm(h) * norm(own)),
    }


class TrialLog:
    """Evaluations of one rule on their way to the records and to `Stall`."""

    def __init__(self, records: Records, label: Row, measure: Callable, criterion: str):
        self._records, self._label, self._criterion = records, label, criterion
        self._measure = measure
        self._lams: list[Hyper] = []
        """Those that were evaluated since the last call of `callback`."""

    def begin(self, file: Path, lam: Hyper, patience: int) -> Stall:
        numbers = self.numbers(lam)
        self._add(0, numbers)
        self._stall = Stall(file, lam, numbers[self._criterion], patience)
        return self._stall

    def numbers(self, lam: Hyper) -> dict[str, np.ndarray]:
        return {k: np.asarray(v, float) for k, v in self._measure(lam).items()}

    def evaluate(self, lam: Hyper) -> dict[str, float]:
        """One number for each trial, as `minimize` keeps them."""
        self._lams.append(lam)
        numbers = self.numbers(lam)
        flat = {f"{k} {i}": v for k, values in numbers.items() for i, v in enumerate(values)}
        return {"mean": float(np.mean(numbers["validation_loss"])), **flat}

    def callback(self, progress: Progress) -> bool:
        for (step, numbers), lam in zip(self._write(progress), self._lams, strict=True):
            self._stall.see(step, numbers[self._criterion], lam)
        self._lams.clear()
        return bool(self._stall.stalled.all())

    def complete(self, result: Result) -> None:
        """What a kill between checkpoint and record may have left out."""
        list(self._write(result))

    def _write(self, now: Progress | Result) -> Iterator[tuple[int, dict[str, np.ndarray]]]:
        for step, flat in evaluations(now):
            names = dict.fromkeys(name.rsplit(" ", 1)[0] for name in flat if " " in name)
            one = lambda k: [v for name, v in flat.items() if name.startswith(k + " ")]  # noqa: B023
            numbers = {k: np.asarray(one(k)) for k in names}
            self._add(step, numbers)
            yield step, numbers

    def _add(self, step: int, numbers: dict[str, np.ndarray]) -> None:
        self._records.extend(
            {"kind": "evaluation", **self._label, "trial": i, "step": step}
            | {k: values[i] for k, values in numbers.items()}
            for i in range(len(numbers["cosine"]))
        )
