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
    depth by tolerance              AdaptiveReverse(rtol=0.01, max_K=50)
    all steps, compressed           Krylov(pieces=1, rank=10)  a few products for all terms
    the same by tolerance           AdaptiveKrylov(rtol=0.1)
"""

from importlib.metadata import version as _version

from . import _moved
from . import extend as extend
from ._dynamics import Descent as Descent
from ._dynamics import Dynamics as Dynamics
from ._dynamics import Prepared as Prepared
from ._dynamics import Stateful as Stateful
from ._dynamics import constant as constant
from ._errors.checkpoints import CheckpointMismatchError as CheckpointMismatchError
from ._errors.checkpoints import CheckpointWarning as CheckpointWarning
from ._errors.outcome import InvisibleLeafWarning as InvisibleLeafWarning
from ._errors.outcome import ToleranceWarning as ToleranceWarning
from ._errors.outer import DivergenceError as DivergenceError
from ._hypergradient import Estimate as Estimate
from ._hypergradient import hypergradient as hypergradient
from ._outer.audits import Audit as Audit
from ._outer.audits import Correction as Correction
from ._outer.checkpoints import Checkpoint as Checkpoint
from ._outer.history import Best as Best
from ._outer.minimize import Result as Result
from ._outer.minimize import minimize as minimize
from ._outer.progress import Progress as Progress
from ._outer.step_size import inverse_sqrt_schedule as inverse_sqrt_schedule
from ._outer.step_size import scale_first_update as scale_first_update
from ._replay.replay import replay as replay
from ._replay.store import Store as Store
from ._rules.adaptive import AdaptiveReverse as AdaptiveReverse
from ._rules.citation import citation as citation
from ._rules.forward import Forward as Forward
from ._rules.implicit import Implicit as Implicit
from ._rules.implicit import Neumann as Neumann
from ._rules.krylov.adaptive import AdaptiveKrylov as AdaptiveKrylov
from ._rules.krylov.rule import Krylov as Krylov
from ._rules.reverse import Reverse as Reverse
from ._solve import solve as solve
from .diagnostics import check_gradient as check_gradient
from .diagnostics import diagnose as diagnose
from .diagnostics import forecast as forecast

__version__ = _version("bilevax")

_moved.install()
__getattr__ = _moved.find
