"""`bilevax clean`: which labels of a table are wrong."""

import shutil
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer


def clean(
    table: Annotated[
        Path, typer.Argument(help="The table to clean: .csv, .tsv, .parquet or .npz.")
    ],
    trusted: Annotated[Path, typer.Option(help="A table with the same columns and right labels.")],
    out: Annotated[
        Path, typer.Option("--out", "-o", help="The table to write, with five more columns.")
    ],
    label: Annotated[str, typer.Option(help="The column (or array) with the labels.")] = "y",
    ignore: Annotated[
        list[str] | None, typer.Option(help="A column to leave out. You may repeat it.")
    ] = None,
    missing: Annotated[
        str | None, typer.Option(help="What fills empty numbers: mean or median.")
    ] = None,
    page: Annotated[
        Path | None, typer.Option(help="The page to write. Default: OUT with .html.")
    ] = None,
    image: Annotated[
        bool, typer.Option("--image", help="Show each row as a square picture.")
    ] = False,
    steps: Annotated[
        int, typer.Option(min=1, help="Steps of the outer loop, which tunes the weights.")
    ] = 50,
    seed: Annotated[int, typer.Option(min=0, help="Random seed.")] = 0,
    threshold: Annotated[
        float, typer.Option(help="A label below this probability is suspect.")
    ] = 0.15,
    batch: Annotated[
        int | None, typer.Option(min=1, help="Rows in a training step. Default: all.")
    ] = None,
    checkpoint: Annotated[Path | None, typer.Option(help="A folder to save the run in.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue an interrupted run.")] = False,
) -> None:
    """Find wrong labels with the help of a few right ones.

    The output has every row as it was, and five more columns:
    weight, suspect, probability, proposed and proposed_probability.
    A page shows the suspect rows. No file is ever overwritten.
    """
    from ..apps import HyperCleaner
    from ..apps._clean import prepare, write

    page = out.with_suffix(".html") if page is None else page
    folder = out.with_name(out.name + ".checkpoint") if checkpoint is None else checkpoint
    _require_run(folder, resume)
    job = prepare(table, trusted, out, page, label, ignore or [], image, missing)
    cleaner = HyperCleaner(
        steps=steps,
        random_state=seed,
        threshold=threshold,
        batch_size=batch,
        progress=None,
        checkpoint_dir=folder,
    )
    with _warnings_as_lines(table, trusted):
        cleaner.fit(job.data.x, job.data.y, job.data.x_trusted, job.data.y_trusted)
    write(job, cleaner)
    if checkpoint is None:
        shutil.rmtree(folder)
    typer.echo(f"Rule {cleaner.rule_}, {steps} hyper-iterations, T = {cleaner.T_} training steps.")
    bad = int(cleaner.suspect_.sum())
    typer.echo(f"{bad} of {len(job.table)} labels are suspect. Table: {out}. Page: {page}.")


@contextmanager
def _warnings_as_lines(table: Path, trusted: Path) -> Iterator[None]:
    """Who gave files to a command is not told of arguments and places in the code."""
    from ..apps import ScaleWarning

    scales = (
        f"most columns of {trusted} are on another scale than in {table}: check that both "
        "have the same units."
    )

    def show(message: Warning | str, category: type[Warning], *_, **__) -> None:
        typer.echo(f"bilevax: {scales if category is ScaleWarning else message}", err=True)

    with warnings.catch_warnings():
        warnings.showwarning = show
        yield


def _require_run(folder: Path, resume: bool) -> None:
    """A folder for checkpoints that is new, or the one to go on with."""
    there = folder.exists()
    if there and not resume:
        raise ValueError(f"{folder} holds a run; give --resume to continue it, or remove it.")
    if resume and not there:
        raise ValueError(f"{folder} does not exist: there is no run to resume; leave out --resume.")
