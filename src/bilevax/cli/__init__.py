"""`bilevax` on the command line."""

import sys


def main() -> None:
    try:
        from ._app import start
    except ModuleNotFoundError as error:
        if error.name not in ("typer", "rich"):
            raise
        sys.exit("The bilevax command needs more than the library: pip install 'bilevax[tools]'.")
    start()
