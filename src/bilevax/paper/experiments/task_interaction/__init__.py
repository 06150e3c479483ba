"""Task interaction (section 4.2.2 and its appendix): Table 3, Figure 6."""

from .._experiment import Experiment
from .run import Config as Config
from .run import run as run
from .sections import sections as sections

EXPERIMENT = Experiment(
    "task-interaction",
    "section 4.2.2: which classes help each other (Table 3, Figure 6)",
    {"quick": Config.quick(), "paper": Config()},
    run,
    sections,
)
