"""`citation(rule)`: the BibTeX of what a rule implements."""

from .._errors import check
from .base import AbstractRule
from .forward import Forward
from .implicit import Implicit, Neumann
from .krylov.adaptive import AdaptiveKrylov
from .krylov.rule import Krylov
from .reverse import Reverse

SHABAN = """@inproceedings{shaban2019truncated,
    title = {Truncated Back-propagation for Bilevel Optimization},
    author = {Shaban, Amirreza and Cheng, Ching-An and Hatch, Nathan and Boots, Byron},
    booktitle = {International Conference on Artificial Intelligence and Statistics},
    year = {2019},
}"""

FRANCESCHI = """@inproceedings{franceschi2017forward,
    title = {Forward and Reverse Gradient-Based Hyperparameter Optimization},
    author = {Franceschi, Luca and Donini, Michele and Frasconi, Paolo and
              Pontil, Massimiliano},
    booktitle = {International Conference on Machine Learning},
    year = {2017},
}"""

HASCOET = """@inproceedings{hascoet2006enabling,
    title = {Enabling User-Driven Checkpointing Strategies in Reverse-Mode Automatic
             Differentiation},
    author = {Hasco{\\"e}t, Laurent and Araya-Polo, Mauricio},
    booktitle = {European Conference on Computational Fluid Dynamics},
    year = {2006},
}"""

GRIEWANK = """@article{griewank1992achieving,
    title = {Achieving Logarithmic Growth of Temporal and Spatial Complexity in Reverse
             Automatic Differentiation},
    author = {Griewank, Andreas},
    journal = {Optimization Methods and Software},
    volume = {1},
    number = {1},
    pages = {35--54},
    year = {1992},
}"""

PEDREGOSA = """@inproceedings{pedregosa2016hyperparameter,
    title = {Hyperparameter Optimization with Approximate Gradient},
    author = {Pedregosa, Fabian},
    booktitle = {International Conference on Machine Learning},
    year = {2016},
}"""

LORRAINE = """@inproceedings{lorraine2020optimizing,
    title = {Optimizing Millions of Hyperparameters by Implicit Differentiation},
    author = {Lorraine, Jonathan and Vicol, Paul and Duvenaud, David},
    booktitle = {International Conference on Artificial Intelligence and Statistics},
    year = {2020},
}"""

SAAD = """@article{saad1992analysis,
    title = {Analysis of Some {K}rylov Subspace Approximations to the Matrix Exponential
             Operator},
    author = {Saad, Yousef},
    journal = {SIAM Journal on Numerical Analysis},
    volume = {29},
    number = {1},
    pages = {209--228},
    year = {1992},
}"""


def citation(rule: AbstractRule) -> str:
    """The BibTeX entries of what a rule implements, ready to paste.

    **Arguments:**

    - `rule`: any rule, with its settings: they decide what there is to cite.

    **Returns:**

    A string of BibTeX entries, separated by blank lines.

    !!! example

        >>> import bilevax as bx
        >>> print(bx.citation(bx.Reverse(K=5)).splitlines()[0])
        @inproceedings{shaban2019truncated,
    """
    check.instance(rule, AbstractRule, "rule", "a rule, as in bx.Reverse(K=5)")
    return "\n\n".join(_entries(rule))


def _entries(rule: AbstractRule) -> list[str]:
    if isinstance(rule, Reverse):
        exact = [] if rule.K else [FRANCESCHI]
        again = [HASCOET] if rule.segment else []
        nested = [GRIEWANK] if isinstance(rule.segment, tuple) else []
        return [SHABAN, *exact, *again, *nested]
    own = {
        Forward: [FRANCESCHI],
        Implicit: [PEDREGOSA],
        Neumann: [LORRAINE],
        Krylov: [SAAD],
        AdaptiveKrylov: [SAAD],
    }
    return [SHABAN, *own.get(type(rule), [])]
