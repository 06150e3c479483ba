"""What is said about `replay`: its source of batches, its tape, a step that diverges."""

import operator
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

import jax
import jax.core
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from . import check
from .checkpoints import CheckpointMismatchError, differences, first_line
from .outcome import CAUSE_OF_DIVERGENCE


def source(batches: Any, T: int) -> None:
    if isinstance(batches, Mapping) or not hasattr(batches, "__getitem__"):
        raise TypeError(
            "batches must give the batch of step t as batches[t], got "
            f"{check.kind_of(batches)}: give a list, an array, or any data set with random access."
        )
    if (n := operator.length_hint(batches, T)) < T:  # T, where nobody knows
        _short(f"batches has {n} items", T)


@contextmanager
def short(t: int, T: int) -> Iterator[None]:
    """While batches[t] is read."""
    try:
        yield
    except (IndexError, KeyError, StopIteration) as error:
        if isinstance(error, KeyError) and error.args != (t,):
            raise  # of something else that the source looked up
        _short(f"batches has no item {t} ({type(error).__name__}: {error})", T)


def _short(found: str, T: int) -> NoReturn:
    raise ValueError(
        f"{found}, but the T = {T} steps need one each: lower T, or give a source that begins "
        "again, as batches[t % n] does."
    )


def batch(t: int, path: Any, leaf: Any) -> np.ndarray:
    """A leaf of batches[t], in host memory; a copy, as a source may use its buffer again."""
    try:
        a = np.array(leaf)
    except (RuntimeError, TypeError, ValueError) as error:
        raise TypeError(_not_an_array(t, path, first_line(error))) from error
    if not jnp.issubdtype(a.dtype, np.number) and a.dtype != bool:
        raise TypeError(_not_an_array(t, path, f"dtype {a.dtype}"))
    return a


def _not_an_array(t: int, path: Any, why: str) -> str:
    name = check.name_of(f"batches[{t}]", path)
    why = why.rstrip(".")
    return f"{name} must be an array of numbers, got {why}: keep anything else out of a batch."


def other_form(t: int, form: PyTree, t_first: int, first: PyTree) -> NoReturn:
    raise ValueError(
        f"batches[{t}] has the form {form}, but batches[{t_first}] has {first}: give batches of "
        "one form (fill up the last one, or leave it out)."
    )


def other_batches(t: int, n: int) -> NoReturn:
    raise ValueError(
        f"batches gave something else when steps {t} to {t + n - 1} were read again: the way back "
        "needs the batches of the way there, so batches[t] must not draw again (seed it with t)."
    )


def segment(value: int, name: str, n: int) -> None:
    if value > n:
        raise ValueError(
            f"segment = {value} is more than {name} = {n} steps: give at most {n}; the square root "
            "of it keeps the fewest states."
        )


def concrete(lam: PyTree, S: PyTree) -> None:
    if any(isinstance(a, jax.core.Tracer) for a in jax.tree.leaves((lam, S))):
        raise TypeError(
            "lam or S is a tracer: the function of bx.replay reads batches from the host, so it "
            "cannot be called inside jax.jit, jax.grad or jax.vmap; call it outside, or use "
            "bx.hypergradient."
        )


def depth(K: Any, T: int) -> int | None:
    if K is None:
        return None
    K = check.integer(K, "K", "give the number of last steps")
    if K > T:
        raise ValueError(
            f"K = {K} steps back are asked for, but the inner loop has only T = {T}: lower K, or "
            "leave it out for all."
        )
    return K


def too_little_room(room: int, n: int, each: int) -> NoReturn:
    need = max(n - 1, 1).bit_length() + 1
    raise ValueError(
        f"host memory for {room} states of {each} bytes is too little for {n} segments: give "
        f"Store(host={need * each}) or more, a directory, or a longer segment."
    )


def diverged(t: int, T: int, batch: PyTree) -> NoReturn:
    """Step t made w not finite; its batch may be the cause."""
    leaves = jax.tree_util.tree_leaves_with_path(batch)
    floats = [(p, a) for p, a in leaves if jnp.issubdtype(a.dtype, np.inexact)]
    bad = [path for path, a in floats if not np.isfinite(a).all()]
    names = ", ".join(check.name_of(f"batches[{t}]", path) for path in bad)
    seen = f"{names} is not finite. " if names else ""
    raise FloatingPointError(
        f"{seen}The inner loop diverged: w is not finite after step t = {t} of T = {T}. "
        + CAUSE_OF_DIVERGENCE
    )


def same_tape(directory: Path, then: dict[str, Any], now: dict[str, Any]) -> None:
    found = differences(then, now)
    if found:
        raise CheckpointMismatchError(
            f"{directory} holds the tape of another call: {found}. Give another directory, or "
            "remove the files bilevax-*.npz there if that call is not to be finished."
        )


def damaged(path: Path, why: Any) -> NoReturn:
    raise ValueError(
        f"{path}, a piece of a tape, is damaged ({first_line(why)}): remove it and call again; "
        "what it held is computed again."
    ) from None


@contextmanager
def writing(directory: Path) -> Iterator[None]:
    """A disk that is full, or may not be written to."""
    try:
        yield
    except OSError as error:
        why = error.strerror or first_line(error)
        raise OSError(
            error.errno,
            f"the tape cannot be written in {directory} ({why}): make room, or give a "
            "folder that can be written to, and call again; what is on the tape stays, and the "
            "call goes on from there",
        ) from error
