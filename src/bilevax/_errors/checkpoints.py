"""What is said about checkpoints."""

import os
from pathlib import Path
from typing import Any, NoReturn

from .warn import warn


class InUseError(RuntimeError):
    """Another run uses the directory."""


class CheckpointMismatchError(ValueError):
    """A run was resumed with settings that differ from those it began with.

    !!! example

        >>> import bilevax as bx, optax, tempfile
        >>> from bilevax import problems
        >>> p = problems.counterexample()
        >>> folder = tempfile.TemporaryDirectory()
        >>> run = lambda T: bx.minimize(p.f, p.xi, bx.Reverse(), p.lam, T=T, steps=2,
        ...     optimizer=optax.sgd(0.1), checkpoint=folder.name)
        >>> result = run(5)
        >>> try:
        ...     run(6)
        ... except bx.CheckpointMismatchError:
        ...     print("the run was begun with T = 5")
        the run was begun with T = 5
        >>> folder.cleanup()
    """


class CheckpointWarning(UserWarning):
    """A checkpoint is damaged and the one before it is used, or one could not be written.

    !!! example

        >>> import bilevax as bx, warnings
        >>> with warnings.catch_warnings():  # a run that should stop when its disk is full
        ...     warnings.simplefilter("error", bx.CheckpointWarning)
    """


def directory(value: Any) -> None:
    if not isinstance(value, (str, os.PathLike)) or not os.fspath(value):
        raise TypeError(
            f"the directory of a checkpoint must be a path, got {value!r}: write "
            'checkpoint="runs/a", or checkpoint=bx.Checkpoint("runs/a", every=100).'
        )


def same_run(directory: Path, then: dict[str, Any], now: dict[str, Any]) -> None:
    """Compare two fingerprints."""
    found = differences(then, now)
    if found:
        raise CheckpointMismatchError(
            f"the checkpoint directory {directory} holds another run: {found}. Give "
            "another directory to begin a new run, or the settings of that run to go on with it."
        )


def differences(then: dict[str, Any], now: dict[str, Any]) -> str:
    """In words, how two fingerprints differ; nothing if they do not."""
    differ = [name for name in now if name != "versions" and then.get(name) != now[name]]
    if not differ:
        return ""
    if len(differ) > 1 and "program" in differ:  # it differs because of the others
        differ.remove("program")
    parts = [_difference(name, then.get(name), now[name]) for name in differ]
    was, is_ = then.get("versions", {}), now["versions"]
    parts += [f"{name} is {is_[name]}, was {was.get(name)}" for name in is_ if was != is_]
    return "; ".join(parts)


_DIFFERENCES = {
    "key": "key has another value",
    "lam": "lam begins with other values",
    "S": "S has other values",
    "batches": "batches begins with other ones",
    "first context": "contexts begins with another item (give the iterator from its beginning)",
    "optimizer": "optimizer computes something else (another constant in it is enough)",
    "program": "f, xi or contexts computes something else (another constant in it is enough)",
}


def _difference(name: str, then: Any, now: Any) -> str:
    if name == "forms":
        names = [n for n in sorted({*then, *now}) if then.get(n) != now.get(n)]
        return ", ".join(f"{n} is {now.get(n)}, was {then.get(n)}" for n in names)
    return _DIFFERENCES.get(name, f"{name} is {now}, was {then}")


def damaged(path: Path, why: Any) -> None:
    warn(
        f"the checkpoint {path} is damaged ({first_line(why)}): it gets a name that begins with "
        "damaged, and the one before it is used.",
        CheckpointWarning,
    )


def as_large(unpacked: int, size: int) -> None:
    if unpacked > size:
        raise ValueError(f"it has {size:,} bytes and would unpack to {unpacked:,}")


def other_digest() -> NoReturn:
    raise ValueError("its content does not agree with its digest")


def not_saved(directory: Path, step: int, why: Exception) -> None:
    warn(
        f"hyper-iteration {step} could not be saved in {directory} ({first_line(why)}): the run "
        "goes on, and tries again at the next checkpoint.",
        CheckpointWarning,
    )


def first_line(why: Any) -> str:
    return str(why).strip().split("\n")[0][:200]


def all_damaged(directory: Path) -> NoReturn:
    raise ValueError(
        f"no checkpoint in {directory} can be read, and bilevax does not start the run "
        "again by itself: restore the directory, or give another one."
    )


def earlier_version(directory: Path) -> NoReturn:
    raise ValueError(
        f"{directory} holds checkpoints of an earlier version of bilevax, which this one does not "
        "read: finish that run with the version that began it, or give another directory."
    )


def in_use(directory: Path, owner: str) -> NoReturn:
    raise InUseError(
        f"the directory {directory} is in use by {owner}: wait until that run has "
        "ended, or give another directory."
    )
