"""Data hypercleaning (section 4.2.1 and its appendix): Table 2, Figure 5."""

from .._experiment import Experiment
from .figures import sections as sections
from .program import Config as Config
from .program import run as run

EXPERIMENT = Experiment(
    "hypercleaning",
    "section 4.2.1: find the wrong labels among 5000 (Table 2, Figure 5)",
    {"quick": Config.quick(), "paper": Config()},
    run,
    sections,
)
