"""The toy problem (section 4.1): Figures 1 to 4."""

from .._experiment import Experiment
from .figures import sections as sections
from .program import Config as Config
from .program import run as run

EXPERIMENT = Experiment(
    "toy",
    "section 4.1: two hyperparameters; the theorems, seen",
    {"quick": Config.quick(), "paper": Config()},
    run,
    sections,
)
