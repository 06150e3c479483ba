"""Checkpoints: one file each, written atomically, verified when read, the last few kept.

A checkpoint is an `.npz` file of arrays under names. One of them, `about`, is a note in JSON, and
one is a digest of all others. A file that does not agree with its digest is put aside, and the one
before it is used. Nothing else in the directory is ever touched.
"""

import dataclasses
import hashlib
import json
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import PyTree

from .._errors import check as base
from .._errors import checkpoints as check
from .._files import atomic_write
from .devices import agreed, on_host
from .lock import locked

Arrays = dict[str, Any]


@dataclasses.dataclass(frozen=True)
class Checkpoint:
    """Where and how often `minimize` saves a run.

    **Arguments:**

    - `directory`: a folder for this run alone. If it holds the run already, the run goes on
        from its newest checkpoint.
    - `every`: save after so many hyper-iterations. Default: by time only.
    - `seconds`: also save when so many seconds have passed.
    - `keep`: how many checkpoints to keep.

    !!! example

        >>> import bilevax as bx, optax, tempfile
        >>> from bilevax import problems
        >>> p = problems.counterexample()
        >>> folder = tempfile.TemporaryDirectory()
        >>> run = lambda steps: bx.minimize(p.f, p.xi, bx.Reverse(), p.lam, T=p.T, steps=steps,
        ...     optimizer=optax.sgd(0.1), checkpoint=bx.Checkpoint(folder.name, every=2))
        >>> result = run(2)
        >>> len(run(4).history["value"])  # the first two are from the first call
        4
        >>> folder.cleanup()
    """

    directory: str | os.PathLike
    every: int | None = None
    seconds: float = 60.0
    keep: int = 3

    def __post_init__(self):
        check.directory(self.directory)
        if self.every is not None:
            base.integer(self.every, "every", "give a number of hyper-iterations")
        base.positive(self.seconds, "seconds", "give the time between two checkpoints")
        base.integer(self.keep, "keep", "give the number of checkpoints to keep")


class Saved(NamedTuple):
    """What a checkpoint holds."""

    arrays: Arrays
    about: dict[str, Any]


@contextmanager
def opened(checkpoint: Checkpoint | None) -> Iterator["Folder | None"]:
    """The checkpoints in a directory, which is locked."""
    if checkpoint is None:
        yield None
        return
    directory = Path(checkpoint.directory).expanduser().resolve()
    directory.mkdir(parents=True, exist_ok=True)
    with locked(directory):
        yield Folder(directory, checkpoint.keep)


class Folder:
    """The checkpoints of one run, in one directory."""

    def __init__(self, directory: Path, keep: int):
        self.directory, self._keep = directory, keep
        if not self._steps() and any(directory.glob("[0-9]*/about")):
            check.earlier_version(directory)
        if jax.process_index() == 0:
            for path in directory.glob(".bilevax-*.npz.*.new"):  # of a run that was killed
                path.unlink()

    def save(self, step: int, arrays: Arrays, about: dict[str, Any]) -> None:
        """Write a checkpoint; when this returns it is there, whole."""
        arrays = {name: on_host(a) for name, a in arrays.items()}  # all processes give their part
        if jax.process_index() > 0:
            return
        write(self._path(step), arrays, about)
        for old in self._steps()[: -self._keep]:
            self._path(old).unlink()

    def load(self) -> Saved | None:
        """The newest checkpoint that is whole; None if there is none."""
        found, damaged = None, []
        while found is None and (left := [s for s in self._steps() if s not in damaged]):
            try:
                found = read(self._path(left[-1]))
            except Exception as error:  # whatever numpy says of a damaged file
                check.damaged(self._path(left[-1]), error)
                damaged.append(left[-1])
        agreed(0)  # every process has looked
        if jax.process_index() == 0:
            for step in damaged:
                _put_aside(self._path(step))
        if damaged and found is None:
            check.all_damaged(self.directory)
        return found

    def _path(self, step: int) -> Path:
        return self.directory / f"bilevax-{step}.npz"

    def _steps(self) -> list[int]:
        numbered = re.compile(r"bilevax-(0|[1-9][0-9]*)\.npz")  # not bilevax-007.npz
        names = [numbered.fullmatch(p.name) for p in self.directory.iterdir() if p.is_file()]
        return sorted(int(name[1]) for name in names if name)


def write(path: Path, arrays: Arrays, about: dict[str, Any]) -> None:
    """Arrays of numpy and a note, whole or not at all."""
    types = {name: a.dtype.name for name, a in arrays.items() if a.dtype.kind == "V"}
    note = json.dumps(about | {"types": types})  # numpy has no name for bfloat16
    arrays = arrays | {"about": np.frombuffer(note.encode(), np.uint8)}
    with atomic_write(path) as file:
        np.savez(file, **arrays, digest=_digest(arrays))


def read(path: Path) -> Saved:
    """What `write` wrote, if every bit of it is there. It is not compressed."""
    with open(path, "rb") as file, np.load(file) as members:
        check.as_large(sum(m.file_size for m in members.zip.infolist()), path.stat().st_size)
        arrays = {name: members[name] for name in members.files}
    if not np.array_equal(arrays.pop("digest"), _digest(arrays)):
        check.other_digest()
    about = json.loads(arrays.pop("about").tobytes())
    types = about.pop("types")
    return Saved({name: a.view(types.get(name, a.dtype)) for name, a in arrays.items()}, about)


def _digest(arrays: Arrays) -> np.ndarray:
    sum_ = hashlib.blake2b(digest_size=16)
    for name, a in sorted(arrays.items()):
        sum_.update(f"{name} {a.itemsize} {a.shape} ".encode())
        sum_.update(raw(a))  # pyright: ignore[reportArgumentType]
    return np.frombuffer(sum_.digest(), np.uint8)


def raw(a: np.ndarray) -> np.ndarray:
    """The bytes of a, not copied."""
    return np.ascontiguousarray(a).reshape(-1).view(np.uint8)


def _put_aside(path: Path) -> None:
    n = len(list(path.parent.glob(f"damaged*-{path.name}")))
    path.rename(path.with_name(f"damaged{n or ''}-{path.name}"))


def named(root: str, x: PyTree) -> Arrays:
    """The leaves of x under their names: lam.penalty, opt.0.mu, ..."""
    out = {}
    for path, leaf in jax.tree_util.tree_leaves_with_path(x):
        name = ".".join(
            filter(None, [root, jax.tree_util.keystr(path, simple=True, separator=".")])
        )
        while name in out:  # {"a": {"b": x}, "a.b": y}
            name += "_"
        out[name] = leaf
    return out


def filled(root: str, x: PyTree, arrays: Mapping[str, Any]) -> PyTree:
    """x with its leaves replaced by those of their names."""
    leaves = [arrays[name] for name in named(root, x)]
    return jax.tree.structure(x).unflatten(leaves)
