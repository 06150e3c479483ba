"""Task interaction (section 4.2.2 and its appendix): Table 3, Figure 6."""

from .._experiment import Experiment
from .figures import sections as sections
from .program import Config as Config
from .program import run as run

EXPERIMENT = Experiment(
    "task-interaction",
    "section 4.2.2: which classes help each other (Table 3, Figure 6)",
    {"quick": Config.quick(), "paper": Config()},
    run,
    sections,
)
