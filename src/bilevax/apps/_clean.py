"""The work of `bilevax clean`: from two tables to a third, and a page."""

from collections.abc import Collection
from pathlib import Path
from typing import NamedTuple

import numpy as np

from . import _tables as tables
from ._features import Examples, examples
from ._hypercleaner import HyperCleaner
from ._page import MOST_CELLS, MOST_ROWS, Finding, Summary, page, side
from ._tables import Table, TableError


class Job(NamedTuple):
    """What was read, and where the answer goes."""

    table: Table
    trusted: Table
    data: Examples
    out: Path
    page: Path
    side: int | None


def job(
    table: Path,
    trusted: Path,
    out: Path,
    page: Path,
    label: str,
    ignore: Collection[str],
    image: bool,
) -> Job:
    """Everything that can be wrong is found here, before any work."""
    if out.suffix.lower() != table.suffix.lower():
        raise TableError(f"{out} must end in {table.suffix}, as {table} does.")
    if out == page:
        raise TableError(f"{out} cannot be both the table and the page; give --page.")
    tables.free(out)
    tables.free(page)
    read, checked = tables.read(table), tables.read(trusted)
    data = examples(read, checked, label, ignore)
    if image and not data.numeric:
        raise TableError(f"--image needs features that are numbers, and {table} has text.")
    return Job(read, checked, data, out, page, side(data.x.shape[1]) if image else None)


def ready(folder: Path, resume: bool) -> None:
    """A folder for checkpoints that is new, or the one to go on with."""
    there = folder.exists()
    if there and not resume:
        raise TableError(f"{folder} holds a run; give --resume to go on, or remove it.")
    if resume and not there:
        raise TableError(f"{folder} does not exist: there is no run to resume; leave out --resume.")


def fit(
    job: Job, steps: int, seed: int, threshold: float, batch: int | None, folder: Path
) -> HyperCleaner:
    cleaner = HyperCleaner(
        steps=steps,
        random_state=seed,
        threshold=threshold,
        batch_size=batch,
        progress=None,
        checkpoint_dir=folder,
    )
    d = job.data
    return cleaner.fit(d.x, d.y, d.x_trusted, d.y_trusted)


def write(job: Job, cleaner: HyperCleaner) -> None:
    """The table and the page."""
    with tables.new_file(job.out) as file:
        job.table.write(file, cleaner.weights_, cleaner.suspect_)
    text = page(_summary(job, cleaner), _findings(job, cleaner))
    with tables.new_file(job.page) as file:
        file.write(text.encode("utf-8", "backslashreplace"))


def _summary(job: Job, cleaner: HyperCleaner) -> Summary:
    y, suspect = job.data.y, cleaner.suspect_
    count = lambda c: (str(c), int((y == c).sum()), int(suspect[y == c].sum()))
    return Summary(
        job.table.path.name,
        job.trusted.path.name,
        len(job.table),
        len(job.trusted),
        int(suspect.sum()),
        [count(c) for c in cleaner.classes_],
    )


def _findings(job: Job, cleaner: HyperCleaner) -> list[Finding]:
    """Suspect rows, least believed first; those beyond the page's end are only counted."""
    suspect = np.flatnonzero(cleaner.suspect_)
    rows = suspect[np.argsort(cleaner.belief_[suspect], kind="stable")]
    shown = rows[:MOST_ROWS]
    if not len(shown):
        return []
    sure = cleaner.predict_proba(job.data.x[shown])
    out = [_finding(job, cleaner, int(i), p) for i, p in zip(shown, sure, strict=True)]
    return out + [out[-1]] * (len(rows) - len(shown))


def _finding(job: Job, cleaner: HyperCleaner, i: int, p: np.ndarray) -> Finding:
    names = job.data.features
    cells = [(name, str(job.table.columns[name][i])) for name in names[:MOST_CELLS]]
    return Finding(
        job.table.places[i],
        str(job.data.y[i]),
        str(cleaner.classes_[p.argmax()]),
        float(p.max()),
        float(cleaner.weights_[i]),
        cells + [(name, "") for name in names[MOST_CELLS:]],
        None if job.side is None else job.data.x[i].reshape(job.side, job.side),
    )
