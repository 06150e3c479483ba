"""Experiments: the paper's, each in a package of its own, and how others are added.

An `Experiment` has presets of its settings, a `run` that writes records, and `sections` that a
report shows of them.
"""

from ._experiment import Experiment as Experiment
from ._experiment import find as find
from ._experiment import known as known
