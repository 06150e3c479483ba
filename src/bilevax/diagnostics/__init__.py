"""What a hypergradient is worth."""

from ._check_gradient import GradientCheck as GradientCheck
from ._check_gradient import check_gradient as check_gradient
