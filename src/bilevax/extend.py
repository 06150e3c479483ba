"""For authors of rules and inner algorithms: the interfaces, and rules as text."""

from ._dynamics import AbstractDynamics as AbstractDynamics
from ._dynamics import Equilibrium as Equilibrium
from ._rules.base import AbstractRule as AbstractRule
from ._rules.base import Channel as Channel
from ._rules.parse import parse_rule as parse_rule
