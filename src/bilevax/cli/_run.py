"""`bilevax list` and `bilevax run`."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from ..paper.experiments import Experiment


def list_experiments() -> None:
    """List the experiments, and their sections in the paper."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from ..paper.experiments import known

    table = Table(box=None, show_header=False, pad_edge=False)
    for name in known():
        table.add_row(Text(name, "bold"), Text(find(name).about))
    Console().print(table)


def run(
    name: Annotated[
        str,
        typer.Argument(help="An experiment that `bilevax list` shows, or your own as module:name."),
    ],
    preset: Annotated[
        str, typer.Option(help="quick: small data, a minute; paper: the size of the paper.")
    ] = "quick",
    rule: Annotated[
        list[str] | None,
        typer.Option(help='A rule, as in --rule "Reverse(K=5)". You may repeat it.'),
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
            help="task-interaction: stop on test accuracy, as the paper did. This leaks test data.",
        ),
    ] = False,
) -> None:
    """Run an experiment. It writes records to a folder while it runs."""
    from ..paper.records import RunError, holds_run

    experiment = find(name)
    changes = {"rules": tuple(rule or ()) or None, "seed": seed, "steps": steps}
    changes["stop_on_test"] = stop_on_test or None
    config = experiment.configure(preset, {k: v for k, v in changes.items() if v is not None})
    label = [experiment.name, preset, str(getattr(config, "seed", 0))]
    folder = out or Path("runs") / "-".join(label)
    if holds_run(folder) and not resume:
        raise RunError(f"{folder} holds a run; give --resume to continue it, or another --out.")
    experiment.run(config, folder, resume=resume, data_dir=str(data_dir) if data_dir else None)
    own = f" --experiment {name}" if ":" in name else ""
    page = f"{experiment.name}.html"
    typer.echo(f"{folder}: done. To see the results: bilevax report {folder} -o {page}{own}")


def find(name: str) -> "Experiment":
    """An experiment; `module:name` is looked for in the present folder too."""
    from ..paper import experiments

    if ":" in name and "" not in sys.path:
        sys.path.insert(0, "")
    return experiments.find(name)
