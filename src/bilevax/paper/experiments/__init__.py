"""The paper's experiments: each a `Config` with presets, and a `run` that writes records."""

from ._registry import EXPERIMENTS as EXPERIMENTS
from ._registry import configure as configure
from ._registry import find as find
