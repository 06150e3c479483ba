"""Where each run was made: settings, machine and versions."""

from collections.abc import Sequence

from ..._pages.section import Section
from ..._pages.table import Column, Table
from ..records import Run
from ._rows import short


def machines(runs: Sequence[Run]) -> Section:
    """The last section of every page."""
    words = lambda *names: tuple(Column(name, words=True) for name in names)
    settings = tuple((run.path.name, str(len(run.rows)), _settings(run)) for run in runs)
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


def _settings(run: Run) -> str:
    return ", ".join(f"{k} = {short(v, 300)}" for k, v in run.config.items())


def _machine(run: Run) -> str:
    env = run.env
    parts = [env.get("processor"), env.get("system"), env.get("cores") and f"{env['cores']} cores"]
    return ", ".join(short(part) for part in parts if part) or "unknown"


def _versions(run: Run) -> str:
    packages = run.env.get("packages")
    packages = packages if isinstance(packages, dict) else {}
    versions = {"python": run.env.get("python")} | packages
    return ", ".join(f"{name} {short(v)}" for name, v in versions.items() if v) or "unknown"
