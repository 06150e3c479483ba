"""Files that are written whole or not at all."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO


@contextmanager
def whole(path: Path) -> Iterator[BinaryIO]:
    """A file to write to, which takes the place of `path` when the block ends without an error;
    until then, and if it does not, `path` is as it was.
    """
    beside = path.with_name(f".{path.name}.{os.getpid()}.new")
    try:
        with open(beside, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())  # a name must not be given to bytes that are not on disk
        os.replace(beside, path)
    finally:
        beside.unlink(missing_ok=True)
