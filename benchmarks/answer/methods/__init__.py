"""The methods by name, each with the colour of its family in the figure."""

from collections.abc import Callable

import bilevax as bx

from ..method import Method
from .amigo import amigo, amigo_cg
from .bome import bome
from .f2sa import f2sa
from .ours import CG, minimize
from .peer_jaxopt import jaxopt_lbfgs
from .soba import soba
from .stocbio import stocbio

OURS = "bilevax"
FEW = 10
"""A minibatch is a tenth of the rows."""

METHODS: dict[str, Callable[[int], Method]] = {  # the number of rows -> the method
    "bilevax: full": lambda n: minimize(bx.Reverse()),
    "bilevax: K=5": lambda n: minimize(bx.Reverse(K=5)),
    "bilevax: K=5, corrected": lambda n: minimize(bx.Reverse(K=5), correct=True),
    "bilevax: Krylov(1, 10)": lambda n: minimize(bx.Krylov(1, 10)),
    "bilevax: full, warm": lambda n: minimize(bx.Reverse(), 10, True),
    "bilevax: AmIGO-CG": lambda n: minimize(bx.Implicit(CG, throw=False), 10, True),
    "bilevax: SOBA": lambda n: minimize(bx.Neumann(1), 1, True),
    "bilevax: SOBA, minibatches": lambda n: minimize(bx.Neumann(1), 1, True, n // FEW),
    "jaxopt: L-BFGS": lambda n: jaxopt_lbfgs(),
    "SOBA": lambda n: soba(),
    "SOBA, minibatches": lambda n: soba(n // FEW),
    "AmIGO-CG": lambda n: amigo_cg(),
    "AmIGO, minibatches": lambda n: amigo(n // FEW),
    "F2SA": lambda n: f2sa(),
    "F2SA, minibatches": lambda n: f2sa(n // FEW),
    "BOME": lambda n: bome(),
    "stocBiO, minibatches": lambda n: stocbio(n // FEW),
    "AmIGO": lambda n: amigo(),
    "stocBiO": lambda n: stocbio(),
}
