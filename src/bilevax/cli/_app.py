"""The commands, put together. Exit codes: 0 done, 1 an error said in a sentence, 2 wrong usage,
130 interrupted. With BILEVAX_DEBUG set, errors come with their traceback.
"""

import os
import sys

import typer

from .._errors.checkpoints import InUseError
from ._clean import clean
from ._data import data_app
from ._report import report
from ._run import list_experiments, run

app = typer.Typer(
    name="bilevax",
    help="Hypergradients for bilevel optimization: the paper's experiments, and tools.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.command("list")(list_experiments)
app.command("run")(run)
app.add_typer(data_app, name="data")
app.command("report")(report)
app.command("clean")(clean)


def start() -> None:
    """Run a command; what the user can mend ends in one sentence, not a traceback."""
    try:
        app()
    except (ValueError, OSError, ImportError, FloatingPointError, InUseError) as error:
        if os.environ.get("BILEVAX_DEBUG"):
            raise
        typer.echo(f"bilevax: {error}", err=True)
        sys.exit(1)
    except KeyboardInterrupt:
        typer.echo("bilevax: interrupted; give --resume to go on.", err=True)
        sys.exit(130)
