"""`bilevax clean`: which labels of a table are wrong."""

import shutil
from pathlib import Path
from typing import Annotated

import typer


def clean(
    table: Annotated[Path, typer.Argument(help="The rows to clean: .csv, .parquet or .npz.")],
    trusted: Annotated[Path, typer.Option(help="Rows with the same columns and right labels.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="Where the rows go, with weights.")],
    label: Annotated[str, typer.Option(help="The column (or array) of labels.")] = "y",
    ignore: Annotated[list[str] | None, typer.Option(help="A column not to learn from.")] = None,
    page: Annotated[Path | None, typer.Option(help="The page; default: OUT with .html.")] = None,
    image: Annotated[bool, typer.Option("--image", help="Show rows as square pictures.")] = False,
    steps: Annotated[int, typer.Option(min=1, help="Hyper-iterations.")] = 50,
    seed: Annotated[int, typer.Option(min=0, help="Of the random numbers.")] = 0,
    threshold: Annotated[float, typer.Option(help="Suspect: labels less probable.")] = 0.15,
    batch: Annotated[int | None, typer.Option(min=1, help="Rows in an inner step.")] = None,
    checkpoint: Annotated[Path | None, typer.Option(help="Where the run is kept.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with a run.")] = False,
) -> None:
    """Find wrong labels with the help of a few right ones.

    Writes every row as it was, with its weight and whether it is suspect, and a page that shows
    the most suspicious rows. Nothing is ever overwritten.
    """
    from ..apps import _clean as work

    page = out.with_suffix(".html") if page is None else page
    job = work.job(table, trusted, out, page, label, ignore or [], image)
    folder = out.with_name(out.name + ".checkpoint") if checkpoint is None else checkpoint
    work.ready(folder, resume)
    cleaner = work.fit(job, steps, seed, threshold, batch, folder)
    work.write(job, cleaner)
    if checkpoint is None:
        shutil.rmtree(folder)
    typer.echo(f"{steps} hyper-iterations by {cleaner.rule_} through T = {cleaner.T_} steps.")
    bad = int(cleaner.suspect_.sum())
    typer.echo(f"{bad} of {len(job.table)} labels are suspect; rows in {out}, a page in {page}.")
