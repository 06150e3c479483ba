"""Experiments by name; a module is imported when it is asked for."""

import dataclasses
import difflib
import importlib
from collections.abc import Sequence
from types import ModuleType
from typing import Any

EXPERIMENTS = {
    "toy": "section 4.1: two hyperparameters; the theorems, seen",
    "hypercleaning": "section 4.2.1: find the wrong labels among 5000 (Table 2, Figure 5)",
    "task-interaction": "section 4.2.2: which classes help each other (Table 3, Figure 6)",
    "one-shot": "section 4.3: a character from one drawing, Omniglot (Table 4, Figure 7)",
}
"""Name to description. The module of an experiment has its name, with underscores."""

PRESETS = ("quick", "paper")


def find(name: str) -> ModuleType:
    """The module of an experiment: `Config`, with a classmethod for each preset, and `run`."""
    if name not in EXPERIMENTS:
        near = difflib.get_close_matches(name, EXPERIMENTS, 1)
        meant = f"did you mean {near[0]}?" if near else f"give one of {', '.join(EXPERIMENTS)}."
        raise ValueError(f"experiment {name!r} is not known; {meant}")
    return importlib.import_module(f".{name.replace('-', '_')}", __package__)


def configure(
    name: str,
    preset: str = "quick",
    rules: Sequence[str] = (),
    seed: int | None = None,
    steps: int | None = None,
    stop_on_test: bool = False,
) -> Any:
    """The settings of an experiment: a preset, with other rules, seed, length or criterion."""
    if preset not in PRESETS:
        raise ValueError(f"preset {preset!r} is not known; give one of {', '.join(PRESETS)}.")
    config = getattr(find(name).Config, preset)()
    changes: dict[str, Any] = {"rules": tuple(rules)} if rules else {}
    given = {"seed": seed, "steps": steps, "leak": stop_on_test or None}
    changes |= {k: v for k, v in given.items() if v is not None}
    if steps is not None and isinstance(getattr(config, "steps", None), tuple):
        changes["steps"] = (steps,) * len(config.steps)  # of each data set
    unknown = changes.keys() - {field.name for field in dataclasses.fields(config)}
    if "leak" in unknown:
        raise ValueError(f"experiment {name} does not stop early; leave out --stop-on-test.")
    if unknown:
        raise ValueError(f"experiment {name} has no {unknown.pop()} to choose; leave it out.")
    return dataclasses.replace(config, **changes)
