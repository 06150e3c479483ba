"""How many memory maps calls add to this process: a compiled program that stays adds some."""

import contextlib
import gc
from pathlib import Path

MAPS = Path("/proc/self/maps")


def added(call, n: int = 20) -> int:
    """By call(2), ..., call(n - 1), when call(0) and call(1) have been made.

    What grows, grows by a program, and so by several maps, a call: five calls show it, too.
    """
    before = 0
    with new_garbage():
        for i in range(n):
            call(i)
            gc.collect()
            if i == 1:
                before = _count()
        return _count() - before


@contextlib.contextmanager
def new_garbage():
    """Collecting looks at what is made inside only, not through all that other tests have left."""
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


def _count() -> int:
    return MAPS.read_bytes().count(b"\n") if MAPS.exists() else 0
