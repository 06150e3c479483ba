"""Inner algorithms: the interface, and the three that are given."""

from .base import AbstractDynamics as AbstractDynamics
from .base import Equilibrium as Equilibrium
from .base import Stateful as Stateful
from .base import constant as constant
from .descent import Descent as Descent
from .descent import all_of as all_of
from .iteration import Dynamics as Dynamics
from .prepared import Prepared as Prepared
