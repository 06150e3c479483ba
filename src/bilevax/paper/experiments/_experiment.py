"""What an experiment is, and how it is found: the paper's, a plugin's, or one in a module."""

import dataclasses
import difflib
import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, Protocol, final

from ..page.section import Section
from ..records import Run

GROUP = "bilevax.experiments"
"""The entry points by which an installed package adds experiments."""

PAPER = {
    name: f"bilevax.paper.experiments.{name.replace('-', '_')}:EXPERIMENT"
    for name in ("toy", "hypercleaning", "task-interaction", "one-shot")
}


class RunProgram(Protocol):
    """Runs an experiment; its records go to the folder `out`."""

    def __call__(
        self, config: Any, out: Path, *, resume: bool = False, data_dir: str | None = None
    ) -> None: ...


@final
@dataclass(frozen=True)
class Experiment:
    """An experiment that `bilevax run` runs and `bilevax report` shows.

    **Arguments:**

    - `name`: its name, which the `config.toml` of its runs keeps as `experiment`.
    - `about`: one line about it.
    - `presets`: settings by name; each a frozen dataclass.
    - `run`: `run(config, out, resume=False, data_dir=None)` writes records to the folder `out`.
    - `sections`: `sections(runs) -> list[Section]`, what a report shows of its runs; without it a
        report shows settings and the last records.

    !!! example

        >>> from bilevax.paper import experiments
        >>> toy = experiments.find("toy")
        >>> toy.about
        'section 4.1: two hyperparameters; the theorems, seen'
        >>> toy.configure("quick", {"steps": 7}).steps
        7
    """

    name: str
    about: str
    presets: Mapping[str, Any]
    run: RunProgram
    sections: Callable[[Sequence[Run]], list[Section]] | None = None

    def configure(self, preset: str = "quick", changes: Mapping[str, Any] | None = None) -> Any:
        """The settings of a preset, with some of them changed."""
        if preset not in self.presets:
            known = ", ".join(self.presets)
            raise ValueError(f"preset {preset!r} is not known; give one of {known}.")
        config, changes = self.presets[preset], dict(changes or {})
        there = {field.name for field in dataclasses.fields(config)}
        for name, value in changes.items():
            if name not in there:
                raise ValueError(f"experiment {self.name} has no {name} to choose; leave it out.")
            old = getattr(config, name)
            if isinstance(old, tuple) and not isinstance(value, tuple):
                changes[name] = (value,) * len(old)  # the same for each data set
        return dataclasses.replace(config, **changes)


def known() -> dict[str, str]:
    """Where each experiment is, as `module:name`: those of installed packages, and the paper's."""
    return {entry.name: entry.value for entry in entry_points(group=GROUP)} | PAPER


def find(name: str) -> Experiment:
    """An experiment by its name, or as `module:name`.

    **Arguments:**

    - `name`: one that `bilevax list` shows, or an `Experiment` in a module that can be imported.

    **Returns:**

    The `Experiment`.

    !!! example

        >>> from bilevax.paper import experiments
        >>> experiments.find("toy") is experiments.find("bilevax.paper.experiments.toy:EXPERIMENT")
        True
    """
    places = known()
    if ":" in name:
        return _load(name)
    if name not in places:
        near = difflib.get_close_matches(name, places, 1)
        meant = f"did you mean {near[0]}?" if near else f"give one of {', '.join(places)}."
        raise ValueError(f"experiment {name!r} is not known; {meant}")
    return _load(places[name])


def _load(place: str) -> Experiment:
    module, _, attribute = place.partition(":")
    try:
        found = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise ValueError(f"experiment {place!r} cannot be imported: {error}.") from error
    if not isinstance(found, Experiment):
        raise ValueError(f"{place} is a {type(found).__name__}; give an Experiment.")
    return found
