"""What the outer loop says about bad input and bad luck."""

import math
import warnings
from pathlib import Path
from typing import Any, NoReturn

import jax
import jax.numpy as jnp

from .. import _check as base

CAUSES = (
    "",  # the inner loop's sentence names T
    base.BAD_VALUE,
    base.BAD_H,
    "the outer update made lam not finite although h is: lower the outer step size.",
)


class DivergenceError(FloatingPointError):
    """A run met a value that is not finite. `result` holds the last good lam and the history."""

    def __init__(self, text: str, result: Any):
        super().__init__(text)
        self.result = result


class SettingsError(ValueError):
    """A run was resumed with other settings than it was begun with."""


class CheckpointWarning(UserWarning):
    """A checkpoint could not be read, and the one before it is used; or not be written."""


def diverged(tau: int, cause: int, T: int, where: str, result: Any) -> NoReturn:
    text = CAUSES[cause] or base.diverged(T)
    last = "The last good lam is this error's result.lam."
    raise DivergenceError(
        f"stopped after hyper-iteration {tau}: {text} {last} {where}".strip(), result
    )


def cannot_warm(xi: Any) -> NoReturn:
    raise TypeError(
        f"warm_start=True needs to start {type(xi).__name__} from a given w, which it can for "
        "Descent, and for Dynamics whose whole state is w (leave out params, and let f pick "
        "what it reads)."
    )


def one_source(S: Any, contexts: Any) -> None:
    if S is not None and contexts is not None:
        raise ValueError(
            "S and contexts were both given: S is the one context of a deterministic problem, "
            "contexts are drawn anew in each hyper-iteration; give one of them."
        )


def kind(contexts: Any) -> str:
    """ "stream", "sampler" or "fixed"."""
    if contexts is None:
        return "fixed"
    if hasattr(contexts, "__iter__") and not isinstance(contexts, (str, dict, jax.Array)):
        return "stream"
    if callable(contexts):
        return "sampler"
    raise TypeError(
        "contexts must be a function key -> S or an iterator of contexts, got "
        f"a value of type {type(contexts).__name__}: for one fixed context write S=..."
    )


def key_for(source: str, key: Any) -> Any:
    if source == "sampler" and key is None:
        raise ValueError("contexts is a sampler, but key is missing: give key=jax.random.key(0).")
    if key is not None and not _is_key(key):
        raise TypeError(f"key must be a key, as in jax.random.key(0), got {key!r}.")
    return key


def _is_key(key: Any) -> bool:
    return isinstance(key, jax.Array) and jnp.issubdtype(key.dtype, jax.dtypes.prng_key)


def batches(source: str, batch: int, at_once: int | None, devices: int) -> int:
    """How many contexts a device takes together."""
    base.integer(batch, "batch", "give the contexts of a hyper-iteration")
    if source == "fixed" and batch > 1:
        raise ValueError(
            f"batch = {batch} asks for several contexts, but there is only S: give contexts, "
            "or batch=1."
        )
    if batch > 1 and batch % devices:
        raise ValueError(
            f"batch = {batch} cannot be divided among the {devices} devices of mesh: give a "
            f"multiple of {devices}."
        )
    part = max(batch // devices, 1)
    if at_once is None:
        return part
    base.integer(at_once, "at_once", "give the contexts that go through vmap together")
    if at_once < part and part % at_once:
        raise ValueError(
            f"at_once = {at_once} must divide the {part} contexts of a device: give 1, {part}, "
            "or a divisor of it."
        )
    return at_once


def contexts_ended(taken: int) -> NoReturn:
    raise ValueError(
        f"contexts ended after {taken} items, before the run did: give an iterator that goes on "
        "(a loader that can be iterated again is), or fewer steps."
    )


def other_form(first: Any, now: Any) -> NoReturn:
    raise ValueError(
        f"contexts changed their shapes from {first} to {now}: one compiled program serves the "
        "whole run; pad them, or drop the last incomplete batch of a loader."
    )


def same_settings(directory: Path, then: dict[str, Any], now: dict[str, Any]) -> None:
    differ = [name for name in now if not _same(then.get(name), now[name])]
    if not differ:
        return
    parts = "; ".join(_difference(name, then.get(name), now[name]) for name in differ)
    raise SettingsError(
        f"checkpoint_dir {directory} holds another run: {parts}. Give another checkpoint_dir to "
        "begin a new run, or the settings of that run to go on with it."
    )


def _same(then: Any, now: Any) -> bool:
    """Equal, numbers up to rounding."""
    if isinstance(then, list) and isinstance(now, list):
        return len(then) == len(now) and all(map(_same, then, now))
    if isinstance(then, float) and isinstance(now, float):
        return math.isclose(then, now, rel_tol=1e-3, abs_tol=1e-3)
    return then == now


def _difference(name: str, then: Any, now: Any) -> str:
    if name in {"lam0", "S", "key"}:
        return f"{name} has other values"
    if name == "optimizer":
        return "optimizer makes another first update (another step size, or another optimizer)"
    if name == "shapes":
        lines = [
            f"{n} is {now.get(n)}, was {then.get(n)}"
            for n in sorted({*then, *now})
            if then.get(n) != now.get(n)
        ]
        return ", ".join(lines)
    return f"{name} is {now}, was {then}"


def scores(value: Any) -> dict[str, float]:
    """What `evaluate` returned, as numbers under names."""
    value = value if isinstance(value, dict) else {"value": value}
    try:
        scores = {str(name): float(x) for name, x in value.items()}
    except (TypeError, ValueError) as error:
        raise TypeError(
            "evaluate(lam) must return a number or a dict of numbers, got "
            f"{ {name: type(x).__name__ for name, x in value.items()} }."
        ) from error
    if not scores:
        raise ValueError("evaluate(lam) returned an empty dict: return a number at least.")
    return scores


def damaged(directory: Path, step: int, why: Any) -> None:
    warnings.warn(
        f"the checkpoint of hyper-iteration {step} in {directory} is damaged ({_first_line(why)}); "
        f"it is put aside as damaged-{step}, and the one before it is used.",
        CheckpointWarning,
        stacklevel=2,
    )


def not_saved(directory: Path, step: int, why: Exception) -> None:
    warnings.warn(
        f"hyper-iteration {step} could not be saved in {directory} ({_first_line(why)}); the run "
        "goes on, and tries again at the next checkpoint.",
        CheckpointWarning,
        stacklevel=2,
    )


def _first_line(why: Any) -> str:
    return str(why).strip().split("\n")[0][:200]


def all_damaged(directory: Path) -> NoReturn:
    raise ValueError(
        f"no checkpoint in {directory} can be read, and a run is not begun anew without your "
        "word: restore the directory, or give another checkpoint_dir."
    )
