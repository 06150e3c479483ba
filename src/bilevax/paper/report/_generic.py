"""Runs of an experiment that has no page of its own: its settings and its last records."""

from collections.abc import Sequence

from ..._pages.section import Section
from ..._pages.table import Column, Table
from ..records import Run
from ._rows import short


def sections(runs: Sequence[Run]) -> list[Section]:
    """A section for each run."""
    return [_section(run) for run in runs]


def _section(run: Run) -> Section:
    title = f"{run.experiment or 'An experiment without a name'}: {run.path.name}"
    text = (f"Records: {len(run.rows)}. The last one of each kind stands below.",)
    last = {str(row.get("kind", "")): row for row in run.rows}
    tables = [_pairs(f"{run.path.name}-settings", "Settings", run.config)]
    tables += [
        _pairs(f"{run.path.name}-{kind}", f"Last record of kind {short(kind, 40)}", row)
        for kind, row in last.items()
    ]
    return Section(title, text, tuple(tables))


def _pairs(name: str, title: str, row: dict) -> Table:
    columns = (Column("name", words=True), Column("value", words=True))
    rows = tuple((short(k), short(v)) for k, v in row.items() if k != "kind")
    return Table(name, title, columns, rows)
