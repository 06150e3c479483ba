"""`bilevax` on the command line."""

import sys


def main() -> None:
    try:
        from ._app import start
    except ModuleNotFoundError as error:
        if error.name not in ("typer", "rich"):
            raise
        sys.exit(
            "The bilevax command needs more than the library: in a clone of bilevax, "
            "pip install '.[tools]'."
        )
    start()
