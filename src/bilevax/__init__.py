"""bilevax: hypergradients for bilevel optimization.

A hypergradient method is a derivative rule for the inner training loop, shaped like
`jax.vjp`. Declare an inner algorithm and an outer objective, choose a rule:

    xi = bx.Descent(g, init, opt)
    hg = bx.hypergradient(f, xi, bx.Reverse(K=5), T=100)
    value, h, w, report = hg(lam, S)
    result = bx.minimize(f, xi, bx.Reverse(K=5), lam, T=100, steps=500, optimizer=opt, S=S)

Swapping the method is changing one argument:

    full back-propagation           Reverse()                  every step, each s_t
    truncated back-propagation      Reverse(K=5)               last 5 steps
    checkpointed back-propagation   Reverse(segment=10)        every step, recomputed
    forward mode                    Forward()                  every step, no history
    implicit differentiation        Implicit()                 the optimum alone
    Neumann series                  Neumann(K=10)              the optimum, 10 terms
    depth by tolerance              Adaptive(rtol=0.01, max_K=50)
    all steps, compressed           Krylov(pieces=2, rank=4)   a few products for all terms
    the same by tolerance           AdaptiveKrylov(rtol=0.1)
"""

from importlib.metadata import version

from ._adaptive import Adaptive as Adaptive
from ._check import ToleranceWarning as ToleranceWarning
from ._citation import citation as citation
from ._dynamics import AbstractDynamics as AbstractDynamics
from ._dynamics import Descent as Descent
from ._dynamics import Dynamics as Dynamics
from ._dynamics import Equilibrium as Equilibrium
from ._dynamics import Prepared as Prepared
from ._dynamics import constant as constant
from ._forward import Forward as Forward
from ._hypergradient import Estimate as Estimate
from ._hypergradient import hypergradient as hypergradient
from ._hypergradient import solve as solve
from ._implicit import Implicit as Implicit
from ._implicit import Neumann as Neumann
from ._krylov import Krylov as Krylov
from ._krylov_adaptive import AdaptiveKrylov as AdaptiveKrylov
from ._outer.check import CheckpointWarning as CheckpointWarning
from ._outer.check import DivergenceError as DivergenceError
from ._outer.check import SettingsError as SettingsError
from ._outer.minimize import Result as Result
from ._outer.minimize import minimize as minimize
from ._outer.step_size import decaying as decaying
from ._outer.step_size import first_update as first_update
from ._reverse import Reverse as Reverse
from ._rule import AbstractRule as AbstractRule
from ._rule import Channel as Channel
from ._specification import parse_rule as parse_rule
from ._visible import InvisibleLeafWarning as InvisibleLeafWarning
from .diagnostics import Diagnosis as Diagnosis
from .diagnostics import Forecast as Forecast
from .diagnostics import GradientCheck as GradientCheck
from .diagnostics import check_gradient as check_gradient
from .diagnostics import diagnose as diagnose
from .diagnostics import forecast as forecast

__version__ = version("bilevax")
