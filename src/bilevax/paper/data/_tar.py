"""Members of a tar.gz: no more is unpacked than was agreed on, and nothing to disk."""

import gzip
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import IO, final

from ..._files import inside, reading, refuse


@final
class Bounded:
    """A stream that ends in an error once it has given more than `limit` bytes."""

    def __init__(self, stream: IO[bytes], limit: int, path: Path):
        self._stream, self._left, self._path, self._limit = stream, limit, path, limit

    def read(self, size: int) -> bytes:
        data = self._stream.read(min(size, self._left + 1))
        self._left -= len(data)
        if self._left < 0:
            raise refuse(self._path, f"unpacks to more than {self._limit:,} bytes")
        return data


def tar_members(path: Path, wanted: Mapping[str, int]) -> dict[str, bytes]:
    """The members of a tar.gz that have these names, each of this size."""
    limit = sum(wanted.values()) + 2**20 * len(wanted)
    members: dict[str, bytes] = {}
    with reading(path), gzip.open(path) as unpacked:
        stream = Bounded(unpacked, limit, path)  # pyright: ignore[reportArgumentType]
        with tarfile.open(fileobj=stream, mode="r|") as tar:  # pyright: ignore
            for member in tar:
                name = inside(path, member.name)
                if not (member.isreg() or member.isdir()):
                    raise refuse(path, f"has the entry {member.name}, which is no plain file")
                if name in wanted:
                    _same(path, name, member.size, wanted[name])
                    members[name] = tar.extractfile(member).read()  # pyright: ignore
        while stream.read(2**20):  # to the end: only there gzip compares its checksum
            pass
    for name, size in wanted.items():
        _same(path, name, len(members.get(name, b"")), size)
    return members


def _same(path: Path, name: str, got: int, size: int) -> None:
    if got != size:
        raise refuse(path, f"has {got:,} bytes of {name}, not {size:,}")
