"""`bilevax report`: runs to a page."""

from pathlib import Path
from typing import Annotated

import typer


def report(
    runs: Annotated[list[Path], typer.Argument(help="Folders of runs.", show_default=False)],
    out: Annotated[Path, typer.Option("--out", "-o", help="The page to write.")] = Path(
        "report.html"
    ),
    figures: Annotated[
        Path | None,
        typer.Option(help="A folder for charts as PNG and tables as Markdown and CSV."),
    ] = None,
) -> None:
    """Tables and figures of runs, on one HTML page that needs no network."""
    from .. import report as pages  # plotly and matplotlib, which no other command needs

    typer.echo(pages.report(runs, out))
    if figures is not None:
        for path in pages.figures(runs, figures):
            typer.echo(path)
