"""Text that is on every machine: Python's own sources, and what came with packages."""

import importlib.metadata
import pathlib
import re
import sysconfig
from typing import NamedTuple

import numpy as np

SYMBOLS = 128
CODE, SHUFFLED, TABLE, PROSE = "code", "shuffled", "table", "prose"
ELSEWHERE = {"test", "tests", "idlelib", "lib2to3", "encodings", "pydoc_data", "site-packages"}
"""Folders of the standard library that hold tests, tables, or other programs."""
LIBRARY = pathlib.Path(sysconfig.get_paths()["stdlib"])


class Texts(NamedTuple):
    """Documents of one size, as symbols: those to train on, and others to judge by."""

    train: np.ndarray
    valid: np.ndarray
    test: np.ndarray


def kinds(documents):
    """Of the documents to train on, a quarter is bad, in three ways."""
    n = documents // 12
    bad = [SHUFFLED] * n + [TABLE] * n + [PROSE] * n
    return np.array(bad + [CODE] * (documents - len(bad)))


def code():
    """The source files of the standard library."""
    inside = lambda path: not ELSEWHERE & {*path.relative_to(LIBRARY).parts}
    return [path for path in LIBRARY.rglob("*.py") if inside(path)]


def tables():
    """Its files that list what each byte means in some alphabet."""
    return [*(LIBRARY / "encodings").glob("cp*.py"), *(LIBRARY / "encodings").glob("iso*.py")]


def prose():
    """README and licence of each installed package."""
    for package in importlib.metadata.distributions():
        names = [f for f in package.files or [] if re.search("METADATA$|LICEN[CS]E", f.name)]
        yield from (pathlib.Path(str(package.locate_file(name))) for name in names)


def pieces(paths, size):
    """The second `size` signs of each file, without those that several share."""
    texts = [path.read_text("utf-8", "replace") for path in sorted(paths) if path.is_file()]
    return list(dict.fromkeys(text[size : 2 * size] for text in texts if len(text) >= 2 * size))


def shuffled(text, rng):
    """The same signs, in another order."""
    return "".join(text[i] for i in rng.permutation(len(text)))


def symbols(texts, size):
    """Rows of ASCII; what is not is a question mark."""
    rows = [text.encode("ascii", "replace")[:size].ljust(size) for text in texts]
    return np.stack([np.frombuffer(row, np.uint8) for row in rows]).astype(np.int32)


def texts(documents, judges, size, seed=0):
    """Pieces of as many files; those to train on are of the kinds above."""
    rng, kind = np.random.default_rng(seed), kinds(documents)
    mixed = lambda paths: list(rng.permutation(np.array(pieces(paths, size), object)))
    good, table, words = mixed(code()), mixed(tables()), mixed(prose())
    one = {CODE: good.pop, TABLE: table.pop, PROSE: words.pop}
    one[SHUFFLED] = lambda: shuffled(good.pop(), rng)
    train = symbols([one[k]() for k in kind], size)
    judging = symbols([good.pop() for _ in range(2 * judges)], size)
    return Texts(train, judging[:judges], judging[judges:])


def windows(documents, length):
    """All rows of `length` signs, one beside the other, of each document."""
    n = documents.shape[1] // length
    return documents[:, : n * length].reshape(len(documents), n, length)


class Batches:
    """Step t sees `rows` documents, a window of each; in an epoch each document has its turn."""

    def __init__(self, documents, rows, length, seed=0):
        self.documents, self.rows, self.length, self.seed = documents, rows, length, seed

    def __getitem__(self, t):
        n, size = self.documents.shape
        places = np.arange(t * self.rows, (t + 1) * self.rows)
        which = np.array([self._epoch(place // n)[place % n] for place in places])
        begin = np.random.default_rng([self.seed, 1, t]).integers(
            size - self.length, size=self.rows
        )
        tokens = self.documents[which[:, None], begin[:, None] + np.arange(self.length + 1)]
        return {"documents": which, "tokens": tokens}

    def _epoch(self, i):
        return np.random.default_rng([self.seed, 0, i]).permutation(len(self.documents))
