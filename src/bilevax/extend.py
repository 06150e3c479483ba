"""For authors of rules and inner algorithms: the interfaces, and the loop they are built on."""

from ._dynamics import AbstractDynamics as AbstractDynamics
from ._dynamics import Equilibrium as Equilibrium
from ._loop import read_vjp as read_vjp
from ._loop import step_vjp as step_vjp
from ._loop import unroll as unroll
from ._rules.base import AbstractRule as AbstractRule
from ._rules.base import Channel as Channel
from ._rules.parse import parse_rule as parse_rule
