"""The tape: states at the boundaries of segments, in host memory and on disk.

On disk each state is one file, and so is each place on the way back. A file is written by a
thread, whole or not at all; what it makes superfluous goes when it is there. So the files say at
any moment how far a call has come. Of several processes each writes what its own devices hold.
"""

import re
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import jax
from jaxtyping import PyTree

from .._errors import replay as check
from .._outer.checkpoints import Saved, read, write
from .._outer.devices import agreed
from .._outer.lock import locked
from .host import Skeleton, from_host, size, to_host
from .store import Store

THERE, BACK = "there", "back"


class Tape:
    """What one call keeps: states by the number of their boundary, and the way back."""

    def __init__(self, directory: Path | None, host: float, pool: ThreadPoolExecutor):
        self.on_disk, self._folder = directory is not None, directory or Path()
        self.host, self._pool = host, pool
        self._memory: dict[int, Saved] = {}
        self._used = 0  # bytes of it
        self._pending: Future | None = None
        self._superfluous: list[Path] = []
        self.about: dict[str, Any] = {}
        """What makes this call the call that it is."""

    def kept(self) -> set[int]:
        """Boundaries whose state every process has."""
        last = -agreed(0, -max(self._numbers(THERE), default=0))[1]
        return {*self._memory, *(i for i in self._numbers(THERE) if i <= last)}

    def place(self, last: int) -> int:
        """The boundary that the way back has reached; `last` if it has not begun."""
        return agreed(0, min(self._numbers(BACK), default=last))[1]

    def put(self, i: int, x: PyTree, checksum: str, keep: bool, superfluous: list[int]) -> None:
        """The state at boundary i, with the checksum of the batches that led there."""
        if not keep and not self.on_disk:
            return
        found = Saved(to_host(x), {"checksum": checksum})
        if keep and self._used + size(found.arrays) <= self.host:
            self._memory[i] = found
            self._used += size(found.arrays)
        self._save(self._path(THERE, i), found, [self._path(THERE, j) for j in superfluous])

    def get(self, i: int, skeleton: Skeleton) -> tuple[PyTree, str]:
        """The state at boundary i, and the checksum of the batches that led there."""
        found = self._memory[i] if i in self._memory else self._load(self._path(THERE, i))
        return from_host(skeleton, found.arrays), found.about["checksum"]

    def put_back(self, j: int, x: PyTree, last: int) -> None:
        """Where the way back stands before segment j; the state after it is not needed again."""
        self._used -= size(self._memory.pop(j, Saved({}, {})).arrays)
        old = [self._path(BACK, j + 1)] + [self._path(THERE, j + 1)] * (j + 1 < last)
        if self.on_disk:
            self._save(self._path(BACK, j), Saved(to_host(x), {}), old)

    def get_back(self, j: int, skeleton: Skeleton) -> PyTree:
        return from_host(skeleton, self._load(self._path(BACK, j)).arrays)

    def remove(self, keep: bool) -> None:
        """What the tape holds; the way back first, so that the rest is a tape at any moment."""
        self._settle()
        if not self.on_disk or keep:
            return
        names = [(BACK, j) for j in self._numbers(BACK)]
        names += [(THERE, i) for i in sorted(self._numbers(THERE), reverse=True)]
        for name in names:
            self._path(*name).unlink()

    def _save(self, path: Path, found: Saved, superfluous: list[Path]) -> None:
        if not self.on_disk:
            return
        self._settle()
        self._superfluous = superfluous
        self._pending = self._pool.submit(write, path, found.arrays, found.about | self.about)

    def _settle(self) -> None:
        """The file before is there, for every process: what it made superfluous goes."""
        if self._pending is not None:
            with check.writing(self._folder):
                self._pending.result()
        agreed(0)
        for path in self._superfluous:
            path.unlink(missing_ok=True)
        self._pending, self._superfluous = None, []

    def _load(self, path: Path) -> Saved:
        self._settle()
        try:
            found = read(path)
        except Exception as error:  # whatever numpy says of a damaged file
            check.damaged(path, error)
        fingerprint = self.about["fingerprint"]
        check.same_tape(path.parent, found.about.get("fingerprint", {}), fingerprint)
        return found

    def _numbers(self, kind: str) -> list[int]:
        if not self.on_disk:
            return []
        pattern = rf"bilevax-{kind}-(\d+)\.{jax.process_index()}\.npz"
        names = [re.fullmatch(pattern, p.name) for p in self._folder.iterdir()]
        return [int(name[1]) for name in names if name]

    def _path(self, kind: str, i: int) -> Path:
        return self._folder / f"bilevax-{kind}-{i}.{jax.process_index()}.npz"


@contextmanager
def opened(store: Store) -> Iterator[Tape]:
    """The tape of a call, whose directory is locked."""
    given = store.directory
    directory = None if given is None else Path(given).expanduser().resolve()
    with ExitStack() as stack:
        if directory is not None:
            with check.writing(directory):
                directory.mkdir(parents=True, exist_ok=True)
                stack.enter_context(locked(directory))
                for path in directory.glob(f".bilevax-*.{jax.process_index()}.npz.*.new"):
                    path.unlink()  # of a call that was killed
        yield Tape(directory, store.host, stack.enter_context(ThreadPoolExecutor(1)))
