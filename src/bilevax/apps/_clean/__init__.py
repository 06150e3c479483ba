"""The work of `bilevax clean`: from two tables to a third, and a page. Nothing is overwritten."""

import os
from collections import Counter
from collections.abc import Collection
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..._files import DataError, atomic_write
from .._hypercleaner import HyperCleaner
from .features import Examples, examples
from .problems import Problems
from .status import status
from .suspects import Finding, Summary, page, side
from .table_file import ADDED, TableFile, read

MOST_ROWS, MOST_CELLS, MOST_PAIRS = 200, 6, 10
"""What a page shows."""


class Job(NamedTuple):
    """What was read, and where the answer goes."""

    table: TableFile
    trusted: TableFile
    data: Examples
    out: Path
    page: Path
    side: int | None
    """Of the square picture that a row is, if rows are shown as pictures."""


def prepare(
    table: Path,
    trusted: Path,
    out: Path,
    page: Path,
    label: str,
    ignore: Collection[str] = (),
    image: bool = False,
    missing: str | None = None,
) -> Job:
    """Everything that can be wrong is found here, before any work."""
    if out.suffix.lower() != table.suffix.lower():
        raise DataError(f"{out} must end in {table.suffix}, as {table} does.")
    if out == page:
        raise DataError(f"{out} cannot be both the table and the page; give --page.")
    for path in (out, page):
        _require_free(path)
    with status(f"reading {table}"):
        rows, checked = _read(table, trusted)
    with status(f"reading the columns of {len(rows)} rows"):
        data = examples(rows, checked, label, ignore, missing)
    if image and not data.numeric:
        raise DataError(f"--image needs features that are numbers, and {table} has others.")
    return Job(rows, checked, data, out, page, side(data.x.shape[1]) if image else None)


def _read(*paths: Path) -> list[TableFile]:
    """All of the tables; what is wrong with any of them is said at once."""
    said, out = Problems(), []
    for path in paths:
        with said.gather():
            out.append(read(path))
    said.stop()
    return out


def write(job: Job, cleaner: HyperCleaner) -> None:
    """The table and the page."""
    added = _added(job, cleaner)
    with atomic_write(job.out, overwrite=False) as file:
        job.table.write(file, added)
    text = page(_summary(job, cleaner, added), _findings(job, added))
    with atomic_write(job.page, overwrite=False) as file:
        file.write(text.encode("utf-8", "backslashreplace"))


def _require_free(path: Path) -> None:
    """Refuse a name that is taken, or that has no folder to stand in."""
    if os.path.lexists(path):
        raise DataError(f"{path} exists and is not overwritten; give another name.")
    if not path.parent.is_dir():
        raise DataError(f"{path.parent} is not a folder; make it, or give another name.")


def _added(job: Job, cleaner: HyperCleaner) -> dict[str, np.ndarray]:
    """The columns of the answer."""
    sure = cleaner.predict_proba(job.data.x)
    best = (
        cleaner.weights_, cleaner.suspect_, cleaner.belief_, cleaner.classes_[sure.argmax(axis=1)],
        sure.max(axis=1),
    )  # fmt: skip
    return dict(zip(ADDED, best, strict=True))


def _summary(job: Job, cleaner: HyperCleaner, added: dict[str, np.ndarray]) -> Summary:
    y, suspect = job.data.y, cleaner.suspect_
    count = lambda c: (str(c), int((y == c).sum()), int(suspect[y == c].sum()))
    pairs = Counter(
        (str(a), str(b))
        for a, b in zip(y[suspect], added["proposed"][suspect], strict=True)
        if a != b
    )
    return Summary(
        job.table.path.name,
        job.trusted.path.name,
        len(job.table),
        len(job.trusted),
        int(suspect.sum()),
        [count(c) for c in cleaner.classes_],
        job.data.columns,
        max(0, len(job.data.features) - MOST_CELLS) if job.side is None else 0,
        [(*pair, n) for pair, n in pairs.most_common(MOST_PAIRS)],
        float(cleaner.threshold),
        job.out.name,
    )


def _findings(job: Job, added: dict[str, np.ndarray]) -> list[Finding]:
    """The first suspect rows, least probable first."""
    suspect = np.flatnonzero(added["suspect"])
    rows = suspect[np.argsort(added["probability"][suspect], kind="stable")][:MOST_ROWS]
    return [_finding(job, {name: added[name][i] for name in ADDED}, int(i)) for i in rows]


def _finding(job: Job, answer: dict[str, Any], i: int) -> Finding:
    names = job.data.features[:MOST_CELLS]
    return Finding(
        job.table.places[i],
        str(job.data.y[i]),
        str(answer["proposed"]),
        float(answer["proposed_probability"]),
        float(answer["probability"]),
        float(answer["weight"]),
        [(name, _text(job.table.columns[name][i])) for name in names],
        None if job.side is None else job.data.x[i].reshape(job.side, job.side),
    )


def _text(cell: Any) -> str:
    return f"{cell:.6g}" if isinstance(cell, np.floating) else str(cell)
