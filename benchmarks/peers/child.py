"""One case, in a process of its own: python -m benchmarks.peers.child CASE.json ROWS.jsonl"""

import json
import os
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from . import problems
from .libraries import load, timed, weighed

Settings = dict[str, Any]


def agreement(settings: Settings) -> Iterator[dict]:
    import jax

    from . import agree

    jax.config.update("jax_enable_x64", True)
    jax.config.update("jax_disable_most_optimizations", True)  # each program runs once
    name = settings["library"]
    cache = Path(settings["cache"]) if settings["cache"] else None
    yield from agree.rows(name, load(name), settings["problems"], cache)


def times(settings: Settings) -> Iterator[dict]:
    from . import measure

    size = problems.quick if settings["quick"] else problems.full
    problem = size(settings["problem"], settings["T"])
    label = {"problem": problem.name, "T": problem.T}
    rounds = 2 if settings["quick"] else measure.ROUNDS
    methods = timed(problem.name, problem.T, settings["quick"])
    seconds = settings["patience"] * settings["seconds"]
    for row in measure.times(problem, methods, seconds, load, rounds):
        yield label | row


def memory(settings: Settings) -> Iterator[dict]:
    from . import measure
    from .wants import NotOfferedError

    size = problems.quick if settings["quick"] else problems.full
    name, T = settings["problem"], settings["T"]
    find = {(library, str(want)): want for library, want in weighed(T)}
    want = find[settings["library"], settings["want"]]
    label = {k: settings[k] for k in ("problem", "T", "library", "want")}
    try:
        row = measure.memory(load(settings["library"]), size(name, T), want, problems.tiny(name))
    except NotOfferedError as error:
        row = {"status": "not offered", "message": str(error)}
    yield label | row


def growth(settings: Settings) -> Iterator[dict]:
    from . import growth

    yield from growth.rows(settings["quick"])


KINDS = {"agreement": agreement, "times": times, "memory": memory, "growth": growth}


def main(case: Path, out: Path) -> None:
    """Rows are on disk as soon as they are there, whatever becomes of the rest."""
    settings = json.loads(case.read_text())
    warnings.simplefilter("ignore")
    with open(out, "a") as file:
        for row in KINDS[settings["kind"]](settings):
            file.write(json.dumps(row) + "\n")
            file.flush()
            os.fsync(file.fileno())


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
