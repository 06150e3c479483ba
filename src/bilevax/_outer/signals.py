"""SIGINT and SIGTERM, deferred until the run is saved."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

from .._errors import outer as check

DEFERRED = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def deferred_signals() -> Iterator[list[int]]:
    """Inside, the first signal goes into the list that is given; the second one acts at once."""
    received: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield received
        return
    before = {number: signal.getsignal(number) for number in DEFERRED}

    def restore():
        for number, handler in before.items():
            signal.signal(number, handler)

    def note(number, frame):
        received.append(number)
        restore()
        check.stopping()

    for number in DEFERRED:
        signal.signal(number, note)
    try:
        yield received
    finally:
        restore()


def leave(number: int) -> NoReturn:
    """End as the signal would have ended the process."""
    if number == signal.SIGINT:
        raise KeyboardInterrupt
    raise SystemExit(128 + number)
