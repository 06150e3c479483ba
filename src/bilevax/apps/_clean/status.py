"""What is being done, on a terminal, before there is a progress bar."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def status(text: str) -> Iterator[None]:
    """Inside, a line with the text; it goes away. Nothing where no terminal is."""
    if not sys.stderr.isatty():
        yield
        return
    from rich.console import Console

    with Console(stderr=True).status(text):
        yield
