"""Data hypercleaning (section 4.2.1 and its appendix): Table 2, Figure 5."""

from .._experiment import Experiment
from .run import Config as Config
from .run import run as run
from .sections import sections as sections

EXPERIMENT = Experiment(
    "hypercleaning",
    "section 4.2.1: find the wrong labels among 5000 (Table 2, Figure 5)",
    {"quick": Config.quick(), "paper": Config()},
    run,
    sections,
)
