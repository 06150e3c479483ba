"""Runs in, files out."""

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import final

from ..._files import atomic_write
from ..experiments import Experiment, find, known
from ..page.chart import Chart
from ..page.page import MARK, Page
from ..page.png import png
from ..page.section import Section
from ..page.table import Table
from ..records import Run, RunError, load
from . import any_run

Paths = Iterable[str | os.PathLike]

TABLES, TABLES_MARK = "tables.md", "<!-- made by bilevax report -->"


@final
class Report:
    """Tables, charts and a page of runs. Each run is read once.

    **Arguments:**

    - `paths`: the folders of the runs.
    - `experiments`: your own, where no installed package provides them.

    !!! example

        >>> import tempfile
        >>> from bilevax.paper.records import Records
        >>> from bilevax.paper.report import Report
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     Records(folder, {"experiment": "mine", "T": 100}).close()
        ...     Report([folder]).tables[0].rows
        (('experiment', 'mine'), ('T', '100'))
    """

    def __init__(self, paths: Paths, experiments: Iterable[Experiment] = ()):
        folders = {Path(path).resolve(): Path(path) for path in paths}
        if not folders:
            raise RunError("paths is empty; give the folder of at least one run.")
        self.runs = [load(path) for path in folders.values()]
        self._given = {experiment.name: experiment for experiment in experiments}

    @cached_property
    def sections(self) -> list[Section]:
        """Those of each experiment, in the order in which the runs were given."""
        return [section for name, runs in self._by_name.items() for section in self._of(name, runs)]

    @cached_property
    def _by_name(self) -> dict[str, list[Run]]:
        groups: dict[str, list[Run]] = {}
        for run in self.runs:
            groups.setdefault(run.experiment, []).append(run)
        return groups

    def _of(self, name: str, runs: Sequence[Run]) -> list[Section]:
        experiment = self._given.get(name) or (find(name) if name in known() else None)
        show = experiment and experiment.sections
        return (show or any_run.sections)(runs)

    @property
    def tables(self) -> list[Table]:
        return [item for item in self._items if isinstance(item, Table)]

    @property
    def _items(self) -> list[Table | Chart]:
        """What is kept as a file."""
        items = [item for section in self.sections for item in section.items]
        return [item for item in items if isinstance(item, Table | Chart)]

    def write(self, out: str | os.PathLike) -> Path:
        """Write the page to `out`. A page of a report that is there is replaced."""
        out = Path(out)
        if out.is_dir():
            raise ValueError(f"out {out} is a folder; give a file, such as page.html.")
        if out.exists() and MARK.encode() not in _head(out):
            raise ValueError(f"out {out} is not a report of bilevax; give another file.")
        names = ", ".join(name or "without a name" for name in self._by_name)
        line = "1 run." if len(self.runs) == 1 else f"{len(self.runs)} runs."
        line += " Hover over a chart for values; click a name in a legend to hide its line."
        page = Page(f"bilevax: {names}", line, (*self.sections, any_run.machines(self.runs)))
        return _write(out, page.html().encode())

    def figures(self, folder: str | os.PathLike) -> list[Path]:
        """Write charts as PNG, tables as CSV, and all tables to `tables.md`, into a folder that is
        new, empty or was written so before.
        """
        folder = Path(folder)
        mine = folder / TABLES
        if folder.exists() and not folder.is_dir():
            raise ValueError(f"figures {folder} is a file; give a folder.")
        ours = mine.is_file() and TABLES_MARK.encode() in _head(mine)
        if not ours and folder.is_dir() and any(folder.iterdir()):
            raise ValueError(f"figures {folder} holds files that are not a report's; give another.")
        text = "\n".join([TABLES_MARK, *(table.markdown() for table in self.tables)])
        written = [_write(mine, text.encode())]  # first: now the folder is a report's
        for name, item in zip(_names(self._items), self._items, strict=True):
            data = png(item) if isinstance(item, Chart) else item.csv().encode()
            written.append(_write(folder / name, data))
        return written


def report(paths: Paths, out: str | os.PathLike, experiments: Iterable[Experiment] = ()) -> Path:
    """Write one page about runs: `Report(paths, experiments).write(out)`."""
    return Report(paths, experiments).write(out)


def figures(
    paths: Paths, folder: str | os.PathLike, experiments: Iterable[Experiment] = ()
) -> list[Path]:
    """Write charts and tables as files: `Report(paths, experiments).figures(folder)`."""
    return Report(paths, experiments).figures(folder)


def _names(items: Sequence[Table | Chart]) -> Iterator[str]:
    """A file name for each, different from all others."""
    taken = {TABLES}
    for item in items:
        ending = ".png" if isinstance(item, Chart) else ".csv"
        plain = re.sub(r"[^A-Za-z0-9_-]+", "-", item.name).strip("-")[:80] or "unnamed"
        name, count = plain + ending, 1
        while name in taken:
            count += 1
            name = f"{plain}-{count}{ending}"
        taken.add(name)
        yield name


def _head(path: Path) -> bytes:
    with open(path, "rb") as file:
        return file.read(1000)


def _write(path: Path, data: bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_write(path) as file:
        file.write(data)
    return path
