"""Columns of text in little memory: bytes in a row, not a Python object for each cell."""

import abc
from collections.abc import Iterator, Sequence
from typing import Any, overload

import numpy as np

CHUNK = 10_000
"""Cells that wait as Python's strings."""


class _Texts(Sequence[str]):
    """Texts that are made when they are asked for."""

    @abc.abstractmethod
    def _text(self, i: int) -> str:
        """The text in place i, 0 <= i < len(self)."""

    @overload
    def __getitem__(self, i: int) -> str: ...
    @overload
    def __getitem__(self, i: slice) -> list[str]: ...
    def __getitem__(self, i: Any) -> Any:
        places = range(len(self))[i]  # IndexError where there is none
        return [self._text(j) for j in places] if isinstance(i, slice) else self._text(places)


class Words(_Texts):
    """A column that grows at its end."""

    def __init__(self):
        self._bytes, self._ends = bytearray(), [np.zeros(1, np.int64)]
        self._waiting: list[str] = []

    def append(self, word: str) -> None:
        self._waiting.append(word)
        if len(self._waiting) >= CHUNK:
            self._settle()

    def _settle(self) -> None:
        parts = [word.encode("utf-8") for word in self._waiting]
        lengths = np.fromiter(map(len, parts), np.int64, len(parts))
        self._ends.append(len(self._bytes) + np.cumsum(lengths))
        self._bytes += b"".join(parts)
        self._waiting = []

    def _settled(self) -> np.ndarray:
        if self._waiting:
            self._settle()
        if len(self._ends) > 1:
            self._ends = [np.concatenate(self._ends)]
        return self._ends[0]

    def __len__(self) -> int:
        return len(self._settled()) - 1

    def __iter__(self) -> Iterator[str]:
        ends = self._settled().tolist()
        for a, b in zip(ends, ends[1:], strict=False):  # noqa: RUF007
            yield self._bytes[a:b].decode("utf-8")

    def _text(self, i: int) -> str:
        a, b = self._settled()[i : i + 2].tolist()
        return self._bytes[a:b].decode("utf-8")


class Places(_Texts):
    """`line 7`, for each row: a word and a number."""

    def __init__(self, word: str, numbers: Sequence[int] | np.ndarray):
        self._word, self._numbers = word, numbers

    def __len__(self) -> int:
        return len(self._numbers)

    def _text(self, i: int) -> str:
        return f"{self._word} {self._numbers[i]}"
