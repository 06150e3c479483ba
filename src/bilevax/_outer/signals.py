"""SIGINT and SIGTERM, put off until the run is saved."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

PUT_OFF = (signal.SIGINT, signal.SIGTERM)


class Asked:
    """Which signal came, if any did."""

    signal: int = 0


@contextmanager
def put_off(wanted: bool) -> Iterator[Asked]:
    """Inside, a first signal is only noted; a second one acts as if nobody had listened."""
    asked = Asked()
    if not wanted or threading.current_thread() is not threading.main_thread():
        yield asked
        return
    before = {number: signal.getsignal(number) for number in PUT_OFF}

    def restore():
        for number, handler in before.items():
            signal.signal(number, handler)

    def note(number, frame):
        asked.signal = number
        restore()

    for number in PUT_OFF:
        signal.signal(number, note)
    try:
        yield asked
    finally:
        restore()


def leave(number: int, text: str) -> NoReturn:
    """End as the signal would have, after the run has been saved."""
    if number == signal.SIGINT:
        raise KeyboardInterrupt(text)
    raise SystemExit(128 + number)
