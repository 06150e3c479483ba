"""Runs in, files out."""

import importlib
import os
import pkgutil
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from ..._files import atomic_write
from ..._pages.chart import Chart
from ..._pages.page import MARK, Page
from ..._pages.png import png
from ..._pages.section import Section
from ..._pages.table import Table
from ..records import Run, RunError, load
from . import _generic
from ._machines import machines
from ._rows import check

Paths = Iterable[str | os.PathLike]

TABLES, TABLES_MARK = "tables.md", "<!-- made by bilevax report -->"


def report(paths: Paths, out: str | os.PathLike) -> Path:
    """Write one page about runs.

    **Arguments:**

    - `paths`: the folders of the runs.
    - `out`: the HTML file. One that is there is replaced if it is such a page.

    **Returns:**

    The file.
    """
    out, runs = Path(out), read(paths)
    if out.is_dir():
        raise ValueError(f"out {out} is a folder; give a file, such as page.html.")
    if out.exists() and MARK.encode() not in _head(out):
        raise ValueError(f"out {out} is not a report of bilevax; give another file.")
    _write(out, _page(runs).html().encode())
    return out


def figures(paths: Paths, folder: str | os.PathLike) -> list[Path]:
    """Write each chart as PNG, each table as CSV, and all tables to `tables.md`.

    **Arguments:**

    - `paths`: the folders of the runs.
    - `folder`: where to; it is empty, new, or was made so before.

    **Returns:**

    The files.
    """
    folder, runs = Path(folder), read(paths)
    mine = folder / TABLES
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"figures {folder} is a file; give a folder.")
    if not (mine.is_file() and TABLES_MARK.encode() in _head(mine)) and _holds_something(folder):
        raise ValueError(f"figures {folder} holds files that are not a report's; give another.")
    folder.mkdir(parents=True, exist_ok=True)
    return _files([s for _, part in _parts(runs) for s in part], folder)


def tables(paths: Paths) -> list[Table]:
    """The tables of the page, for a terminal or a notebook.

    **Arguments:**

    - `paths`: the folders of the runs.
    """
    return _tables([section for _, part in _parts(read(paths)) for section in part])


def _tables(sections: Sequence[Section]) -> list[Table]:
    return [item for section in sections for item in section.items if isinstance(item, Table)]


def read(paths: Paths) -> list[Run]:
    """The runs in these folders, each once."""
    folders = {Path(path).resolve(): Path(path) for path in paths}
    if not folders:
        raise RunError("paths is empty; give the folder of at least one run.")
    return [check(load(path)) for path in folders.values()]


def experiments() -> list[str]:
    """The experiments whose runs have sections of their own."""
    here = [str(Path(__file__).parent)]
    names = [module.name for module in pkgutil.iter_modules(here)]
    return [name.replace("_", "-") for name in names if not name.startswith("_")]


def _parts(runs: Sequence[Run]) -> list[tuple[str, list[Section]]]:
    """The sections of each experiment, in the order in which they were given."""
    by_name: dict[str, list[Run]] = {}
    for run in runs:
        by_name.setdefault(run.experiment, []).append(run)
    return [(name, _sections(name, group)) for name, group in by_name.items()]


def _sections(name: str, runs: Sequence[Run]) -> list[Section]:
    if name not in experiments():
        return _generic.sections(runs)
    module = importlib.import_module(f".{name.replace('-', '_')}", __package__)
    return module.sections(runs)


def _page(runs: Sequence[Run]) -> Page:
    parts = _parts(runs)
    names = ", ".join(name or "without a name" for name, _ in parts)
    line = "1 run." if len(runs) == 1 else f"{len(runs)} runs."
    line += " Charts answer to the pointer; a click on a legend hides a line."
    sections = [section for _, part in parts for section in part]
    return Page(f"bilevax: {names}", line, (*sections, machines(runs)))


def _files(sections: Sequence[Section], folder: Path) -> list[Path]:
    items = [item for section in sections for item in section.items]
    tables = _tables(sections)
    text = "\n".join([TABLES_MARK, *(table.markdown() for table in tables)])
    written = [_write(folder / TABLES, text.encode())]  # first: now the folder is a report's
    taken: set[str] = {TABLES}
    for item in items:
        ending = ".png" if isinstance(item, Chart) else ".csv"
        path = folder / _free(_plain(item.name), ending, taken)
        data = png(item) if isinstance(item, Chart) else item.csv().encode()
        written.append(_write(path, data))
    return written


def _plain(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9_-]+", "-", name).strip("-")[:80] or "unnamed"


def _free(name: str, ending: str, taken: set[str]) -> str:
    """A name that no other file of this report has."""
    free, count = name + ending, 1
    while free in taken:
        count += 1
        free = f"{name}-{count}{ending}"
    taken.add(free)
    return free


def _head(path: Path) -> bytes:
    with open(path, "rb") as file:
        return file.read(1000)


def _holds_something(folder: Path) -> bool:
    return folder.is_dir() and any(folder.iterdir())


def _write(path: Path, data: bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_write(path) as file:
        file.write(data)
    return path
