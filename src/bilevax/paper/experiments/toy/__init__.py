"""The toy problem (section 4.1): Figures 1 to 4."""

from .._experiment import Experiment
from .run import Config as Config
from .run import run as run
from .sections import sections as sections

EXPERIMENT = Experiment(
    "toy",
    "section 4.1: two hyperparameters; the theorems, seen",
    {"quick": Config.quick(), "paper": Config()},
    run,
    sections,
)
