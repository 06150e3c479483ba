"""What is wrong with the tables, gathered, so that one run names all of it."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from ..._files import DataError


class Problems:
    """Sentences for the user, each about one thing to mend."""

    def __init__(self, first: Sequence[str] = ()):
        self._said = list(first)
        self._columns: list[str] = []

    def add(self, sentence: str) -> None:
        self._said.append(sentence)

    @contextmanager
    def gather(self, column: str | None = None) -> Iterator[None]:
        """Inside, an error is kept for later; `column` could be ignored to avoid it."""
        try:
            yield
        except DataError as error:
            self.add(str(error))
            self._columns += [] if column is None else [column]

    def stop(self) -> None:
        """Say all of them, if there are any."""
        if not self._said:
            return
        if len(self._said) == 1:
            raise DataError(self._said[0])
        ignore = " ".join(f"--ignore {name}" for name in self._columns)
        leave = f" To leave out the columns that cannot be used, pass {ignore}." if ignore else ""
        lines = "".join(f"\n  {sentence}" for sentence in self._said)
        raise DataError(f"found {len(self._said)} problems.{leave}{lines}")


def some(names: Sequence[object], most: int = 8) -> str:
    """The first of them, and how many more."""
    more = f", and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(repr(name) for name in names[:most]) + more
