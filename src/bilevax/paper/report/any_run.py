"""What can be said of any run: settings and last records, machine and versions."""

from collections.abc import Sequence

from ..page.section import Section
from ..page.table import Column, Table
from ..records import Row, Run
from .rows import short


def sections(runs: Sequence[Run]) -> list[Section]:
    """A section for each run of an experiment that says nothing itself."""
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


def machines(runs: Sequence[Run]) -> Section:
    """The last section of every page."""
    words = lambda *names: tuple(Column(name, words=True) for name in names)
    settings = tuple((run.path.name, str(len(run.rows)), _all(run.config)) for run in runs)
    columns = (Column("run", words=True), Column("records"), Column("settings", words=True))
    places: dict[tuple[str, str], list[str]] = {}
    for run in runs:
        places.setdefault((_machine(run), _versions(run)), []).append(run.path.name)
    rows = tuple((", ".join(names), *place) for place, names in places.items())
    return Section(
        "Runs, machines and versions",
        (),
        (
            Table("settings", "Settings", columns, settings),
            Table("machines", "Machines", words("runs", "machine", "versions"), rows),
        ),
    )


def _all(config: Row) -> str:
    return ", ".join(f"{k} = {short(v, 300)}" for k, v in config.items())


def _machine(run: Run) -> str:
    env = run.env
    parts = [env.get("processor"), env.get("system"), env.get("cores") and f"{env['cores']} cores"]
    return ", ".join(short(part) for part in parts if part) or "unknown"


def _versions(run: Run) -> str:
    packages = run.env.get("packages")
    packages = packages if isinstance(packages, dict) else {}
    versions = {"python": run.env.get("python")} | packages
    return ", ".join(f"{name} {short(v)}" for name, v in versions.items() if v) or "unknown"
