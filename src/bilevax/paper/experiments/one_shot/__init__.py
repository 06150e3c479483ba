"""One-shot classification (section 4.3 and its appendix): Table 4, Figure 7."""

from .._experiment import Experiment
from .config import Config as Config
from .figures import sections as sections
from .program import run as run

EXPERIMENT = Experiment(
    "one-shot",
    "section 4.3: a character from one drawing, Omniglot (Table 4, Figure 7)",
    {"quick": Config.quick(), "paper": Config()},
    run,
    sections,
)
