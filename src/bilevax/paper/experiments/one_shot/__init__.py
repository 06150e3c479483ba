"""One-shot classification (section 4.3 and its appendix): Table 4, Figure 7."""

from .._experiment import Experiment
from .run import Config as Config
from .run import run as run
from .sections import sections as sections

EXPERIMENT = Experiment(
    "one-shot",
    "section 4.3: a character from one drawing, Omniglot (Table 4, Figure 7)",
    {"quick": Config.quick(), "paper": Config()},
    run,
    sections,
)
