"""The problems by name; each is built when it is asked for."""

from collections.abc import Callable

from ..problem import Problem
from .cleaning import hypercleaning
from .logistic import groups, penalties
from .mlp import network

PROBLEMS: dict[str, Callable[[], Problem]] = {
    "hypercleaning": hypercleaning,
    "penalties": penalties,
    "MLP": network,
    "20 penalties": groups,
}
