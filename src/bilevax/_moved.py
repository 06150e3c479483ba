"""Old names, which work for one more version and say what the new ones are."""

import importlib
import importlib.abc
import importlib.machinery
import sys
import warnings
from types import ModuleType
from typing import Any

NAMES = {
    "Adaptive": "AdaptiveReverse",
    "SettingsError": "CheckpointMismatchError",
    "decaying": "inverse_sqrt_schedule",
    "first_update": "scale_first_update",
    "AbstractDynamics": "extend.AbstractDynamics",
    "AbstractRule": "extend.AbstractRule",
    "Channel": "extend.Channel",
    "Equilibrium": "extend.Equilibrium",
    "parse_rule": "extend.parse_rule",
    "Diagnosis": "diagnostics.Diagnosis",
    "Forecast": "diagnostics.Forecast",
    "GradientCheck": "diagnostics.GradientCheck",
}
MODULES = {
    "bilevax.data": "bilevax.paper.data",
    "bilevax.records": "bilevax.paper.records",
    "bilevax.report": "bilevax.paper.report",
}


def find(name: str) -> Any:
    """What `bilevax.name` is called now."""
    if name not in NAMES:
        raise AttributeError(f"module 'bilevax' has no attribute {name!r}")
    _warn(f"bilevax.{name}", f"bilevax.{NAMES[name]}", stacklevel=4)
    found = importlib.import_module("bilevax")
    for part in NAMES[name].split("."):
        found = getattr(found, part)
    return found


def _warn(old: str, new: str, stacklevel: int) -> None:
    text = f"{old} is now {new}; the old name goes with the next version."
    warnings.warn(text, DeprecationWarning, stacklevel=stacklevel)


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Imports a module that has moved from where it is now."""

    def find_spec(self, fullname: str, path: Any, target: Any = None):
        if fullname in MODULES:
            return importlib.machinery.ModuleSpec(fullname, self)
        return None

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        _warn(spec.name, MODULES[spec.name], stacklevel=7)
        return importlib.import_module(MODULES[spec.name])

    def exec_module(self, module: ModuleType) -> None:
        """The module is there already."""


def install() -> None:
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.append(_Finder())
