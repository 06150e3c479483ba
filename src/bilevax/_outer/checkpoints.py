"""Checkpoints by Orbax: written atomically, verified when read, the last few kept.

A checkpoint holds arrays, under names, and a JSON note about them: the settings of the run and a
digest of every array. What does not agree with its digests is put aside, and the checkpoint
before it is used.
"""

import hashlib
import json
import os
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.experimental import multihost_utils

from .._errors import outer as check

Arrays = dict[str, Any]


class Saved(NamedTuple):
    """One checkpoint."""

    arrays: Arrays
    about: dict[str, Any]


class Checkpoints:
    """The checkpoints of one run, in one directory."""

    def __init__(self, directory: str | os.PathLike, keep: int):
        import orbax.checkpoint as ocp  # takes half a second

        self.directory = Path(directory).absolute()
        self._options = ocp.CheckpointManagerOptions(
            max_to_keep=keep, enable_async_checkpointing=False, cleanup_tmp_directories=True
        )
        self._args, self._manage = ocp.args, ocp.CheckpointManager
        self._open()

    def _open(self) -> None:
        self._manager = self._manage(self.directory, options=self._options)

    def save(self, step: int, arrays: Arrays, about: dict[str, Any]) -> None:
        """Write a checkpoint; when this returns it is there, whole."""
        full = {name: a for name, a in arrays.items() if a.size}  # Orbax refuses empty ones
        about = json.loads(json.dumps(about | {"digests": digests(full)}))
        args = self._args.Composite(
            state=self._args.StandardSave(full),
            about=self._args.JsonSave(about | {"seal": _seal(about)}),
        )
        self._manager.save(step, args=args, force=True)
        self._manager.wait_until_finished()

    def load(self, template: Any) -> Saved | None:
        """The newest checkpoint that is whole; None in an empty directory.

        `template`: about -> arrays, or their shapes, to be read in those places.
        """
        broken = self._unfinished()
        found = None
        for step in sorted(self._manager.all_steps(), reverse=True):
            try:
                found = self._read(step, template)
                break
            except check.SettingsError:
                raise
            except Exception as error:  # whatever Orbax says of a damaged file
                check.damaged(self.directory, step, error)
                broken.append(step)
        self._put_aside(broken)
        if broken and found is None:
            check.all_damaged(self.directory)
        return found

    def _read(self, step: int, template: Any) -> Saved:
        args = self._args.Composite(about=self._args.JsonRestore())
        about = dict(self._manager.restore(step, args=args)["about"])
        if about.pop("seal", None) != _seal(about):
            raise ValueError("its note does not agree with its seal")
        wanted = template(about)
        full = {name: a for name, a in wanted.items() if a.size}
        args = self._args.Composite(state=self._args.StandardRestore(full))
        arrays = self._manager.restore(step, args=args)["state"]
        wrong = [name for name, d in digests(arrays).items() if about["digests"][name] != d]
        if wrong:
            raise ValueError(f"the digest of {wrong[0]} does not agree")
        return Saved({name: arrays.get(name, a) for name, a in wanted.items()}, about)

    def _unfinished(self) -> list[int]:
        """Directories with the name of a step that Orbax does not take for checkpoints."""
        names = {int(p.name) for p in self.directory.iterdir() if p.name.isdigit()}
        steps = sorted(names - set(self._manager.all_steps()))
        for step in steps:
            check.damaged(self.directory, step, "it is incomplete")
        return steps

    def _put_aside(self, steps: list[int]) -> None:
        if not steps:
            return
        self._manager.close()
        if jax.process_index() == 0:
            for step in steps:
                n = len(list(self.directory.glob(f"damaged-{step}*")))
                name = f"damaged-{step}-{n}" if n else f"damaged-{step}"
                (self.directory / str(step)).rename(self.directory / name)
        if jax.process_count() > 1:
            multihost_utils.sync_global_devices("bilevax: damaged checkpoints put aside")
        self._open()

    def close(self) -> None:
        self._manager.close()


def digests(arrays: Arrays) -> dict[str, str | None]:
    """A digest of the bytes of each array; None for one that no single process holds."""
    return {name: _digest(a) for name, a in arrays.items()}


def _digest(a: Any) -> str | None:
    if isinstance(a, jax.Array):
        if not (a.is_fully_addressable or a.is_fully_replicated):
            return None
        a = a.addressable_data(0) if a.is_fully_replicated else a
    a = np.asarray(a)
    head = f"{a.dtype} {a.shape} ".encode()
    return hashlib.blake2b(head + np.ascontiguousarray(a).tobytes(), digest_size=8).hexdigest()


def _seal(about: dict[str, Any]) -> str:
    text = json.dumps(about, sort_keys=True)
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()
