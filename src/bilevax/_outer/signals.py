"""SIGINT and SIGTERM, put off until the run is saved."""

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

SAID = b"\nbilevax: stopping after this hyper-iteration; once more to stop at once\n"
PUT_OFF = (signal.SIGINT, signal.SIGTERM)


class Asked:
    """Which signal came, if any did."""

    signal: int = 0


@contextmanager
def put_off() -> Iterator[Asked]:
    """Inside, a first signal is only noted; a second one acts as if nobody had listened."""
    asked = Asked()
    if threading.current_thread() is not threading.main_thread():
        yield asked
        return
    before = {number: signal.getsignal(number) for number in PUT_OFF}

    def restore():
        for number, handler in before.items():
            signal.signal(number, handler)

    def note(number, frame):
        asked.signal = number
        restore()
        os.write(2, SAID)

    for number in PUT_OFF:
        signal.signal(number, note)
    try:
        yield asked
    finally:
        restore()


def leave(number: int) -> NoReturn:
    """End as the signal would have, when the run is in order."""
    if number == signal.SIGINT:
        raise KeyboardInterrupt
    raise SystemExit(128 + number)
