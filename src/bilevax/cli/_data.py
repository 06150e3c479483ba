"""`bilevax data`: list, fetch, check."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from ..paper import data
from ..paper.data import DATASETS, DataError, Dataset

data_app = typer.Typer(help="List, fetch and check data sets.")

DataDir = Annotated[
    Path | None, typer.Option(help="A folder with data sets, instead of that in BILEVAX_DATA.")
]


@data_app.command("list")
def show(data_dir: DataDir = None) -> None:
    """List the data sets, and where each is on this machine."""
    table = Table("name", "what", "to fetch", "licence", box=None, pad_edge=False)
    for dataset in DATASETS.values():
        size = f"{dataset.size / 1e6:.0f} MB" if dataset.files else ""
        table.add_row(dataset.name, dataset.description, size, dataset.licence)
    Console().print(table)
    typer.echo()
    for dataset in DATASETS.values():  # a path is one line, whatever the width
        typer.echo(f"{dataset.name}: {_where(dataset, data_dir)}")


def _where(dataset: Dataset, data_dir: Path | None) -> str:
    if not dataset.files:
        return "scikit-learn"
    here = data.find(dataset, data_dir)
    if here is None:
        return f"not found; fetch it with: bilevax data fetch {dataset.name}"
    whole = here.form is dataset.forms[0]
    return f"{here.paths[0]}{'' if whole else ' (not the official files, maybe a part of them)'}"


@data_app.command()
def fetch(
    names: Annotated[list[str], typer.Argument(help="Names of data sets.")],
    data_dir: Annotated[
        Path | None, typer.Option(help="The folder to write to. Default: your cache.")
    ] = None,
) -> None:
    """Fetch data sets from their official addresses, and verify them. Existing files stay."""
    for dataset in _named(names):
        if not dataset.files:
            typer.echo(f"{dataset.name}: comes with scikit-learn.")
            continue
        here = data.find(dataset) if data_dir is None else None
        if here is not None and here.form is dataset.forms[0]:
            typer.echo(f"{dataset.name}: found in {here.place}.")
            continue
        got = data.download(dataset, data_dir)
        typer.echo(f"{dataset.name}: fetched to {got.place}.")
        if here is not None:
            typer.echo(f"{here.paths[0]} comes first, until it is moved away.", err=True)


@data_app.command()
def check(
    names: Annotated[
        list[str] | None, typer.Argument(help="Names of data sets. Default: all found.")
    ] = None,
    data_dir: DataDir = None,
) -> None:
    """Check that data sets are complete, with the right shapes and checksums."""
    bad = 0
    for dataset in _named(names or list(DATASETS)):
        results = list(data.check(dataset, data_dir))
        bad += sum(not result.fits for result in results) + bool(names and not results)
        if not results:
            typer.echo(f"{dataset.name}: not found.")
        for result in results:
            where = ", ".join(map(str, result.here.paths[:1])) or dataset.name
            typer.echo(f"{where}: {'ok' if result.fits else 'NOT OK'}: {result.words}")
    if bad:
        raise typer.Exit(1)


def _named(names: list[str]) -> list[Dataset]:
    for name in names:
        if name not in DATASETS:
            raise DataError(f"{name!r} is no data set here; give one of {', '.join(DATASETS)}.")
    return [DATASETS[name] for name in names]
