"""Inner algorithms: the interface, and the three that are given."""

from .base import AbstractDynamics as AbstractDynamics
from .base import Equilibrium as Equilibrium
from .base import constant as constant
from .descent import Descent as Descent
from .descent import whole as whole
from .iteration import Dynamics as Dynamics
from .iteration import everything as everything
from .prepared import Prepared as Prepared
