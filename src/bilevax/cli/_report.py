"""`bilevax report`: runs to a page."""

from pathlib import Path
from typing import Annotated, Any

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
    experiment: Annotated[
        list[str] | None,
        typer.Option(help="An experiment of your own, as module:name. You may repeat it."),
    ] = None,
) -> None:
    """Show tables and figures of runs, on the terminal and on one HTML page that works offline."""
    from ..paper.report import Report
    from ._run import find

    shown = Report(runs, [find(name) for name in experiment or ()])
    for table in shown.tables:
        _print(table.title, table.columns, table.rows)
    typer.echo(shown.write(out))
    if figures is not None:
        for path in shown.figures(figures):
            typer.echo(path)


def _print(title: str, columns: Any, rows: Any) -> None:
    """A table on the terminal; the paper's values are dim."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(title=Text(title), title_justify="left", box=None, pad_edge=False)
    for column in columns:
        style = "dim" if column.paper else None
        side = "left" if column.words else "right"
        table.add_column(Text(column.name), style=style, justify=side, no_wrap=True)
    for row in rows:
        table.add_row(*map(Text, row))
    console = Console()
    if not console.is_terminal:
        console.width = 200  # a file has no edge
    console.print(table)
    console.print()
