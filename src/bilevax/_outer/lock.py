"""A lock on a directory, which goes when its process goes, however that ends."""

import os
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import jax

from .._errors import checkpoints as check
from .devices import agreed

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None

_held: set[Path] = set()
"""What this process has locked: the system does not hold a lock against its owner."""
_one_at_a_time = threading.Lock()
"""Threads of this process."""


@contextmanager
def locked(directory: Path) -> Iterator[None]:
    """Inside, no other run uses the directory. Of the processes of one run, the first locks."""
    directory = directory.resolve()  # one folder has one name
    path = directory / ".bilevax.lock"
    with _one_at_a_time:
        mine = busy = directory in _held  # to open the file again and close it would unlock it
        _held.add(directory)
    with ExitStack() as stack:
        if not mine:
            stack.callback(_held.discard, directory)
        if jax.process_index() == 0 and not mine:
            file = os.open(path, os.O_RDWR | os.O_CREAT)
            stack.callback(os.close, file)
            busy = _is_locked_by_another(file)
        if agreed(0, busy)[1]:
            check.in_use(directory, "this process" if mine else path.read_text())
        yield


def _is_locked_by_another(file: int) -> bool:
    """If not, it is locked by this process now, and says so.

    `lockf` works over NFS, and child processes do not inherit its locks. A file system that
    has none locks nothing.
    """
    try:
        if fcntl is not None:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):
        return True
    except OSError:
        return False
    with suppress(OSError):  # a full disk
        os.ftruncate(file, 0)
        os.write(file, f"process {os.getpid()} on {socket.gethostname()}".encode())
    return False
