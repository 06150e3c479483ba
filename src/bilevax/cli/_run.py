"""`bilevax list` and `bilevax run`."""

from pathlib import Path
from typing import Annotated, Literal

import typer


def list_experiments() -> None:
    """The experiments, and where they stand in the paper."""
    from rich.console import Console
    from rich.table import Table

    from ..paper.experiments import EXPERIMENTS

    table = Table(box=None, show_header=False, pad_edge=False)
    for name, what in EXPERIMENTS.items():
        table.add_row(f"[bold]{name}[/]", what)
    Console().print(table)


def run(
    name: Annotated[str, typer.Argument(help="An experiment, as `bilevax list` shows them.")],
    preset: Annotated[
        Literal["quick", "paper"],
        typer.Option(help="Seconds on small data, or the paper's size."),
    ] = "quick",
    rule: Annotated[
        list[str] | None, typer.Option(help='A rule, as in --rule "Reverse(K=5)"; may be repeated.')
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Random seed.")] = None,
    steps: Annotated[int | None, typer.Option(help="Hyper-iterations.", min=1)] = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder of the run. Default: runs/NAME-PRESET-SEED.")
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue the run in --out.")] = False,
    data_dir: Annotated[Path | None, typer.Option(help="Folder to look for data sets in.")] = None,
    stop_on_test: Annotated[
        bool,
        typer.Option(
            "--stop-on-test",
            help="task-interaction: stop on test accuracy, as the paper did, which leaks.",
        ),
    ] = False,
) -> None:
    """Run an experiment; its records are written to a folder as it goes."""
    from .._rules.parse import parse_rule
    from ..paper.experiments import configure, find

    config = configure(name, preset, rule or (), seed, steps, stop_on_test)
    read = getattr(find(name), "read_rule", parse_rule)  # an experiment may know more words
    for text in rule or ():
        read(text)
    folder = out or Path("runs") / "-".join([name, preset, str(getattr(config, "seed", 0))])
    find(name).run(config, folder, resume=resume, data_dir=str(data_dir) if data_dir else None)
    typer.echo(f"{folder}: done. Look at it: bilevax report {folder} -o {name}.html")
