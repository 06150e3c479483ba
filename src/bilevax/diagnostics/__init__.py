"""What a hypergradient is worth."""

from ._check_gradient import GradientCheck as GradientCheck
from ._check_gradient import check_gradient as check_gradient
from ._diagnose import diagnose as diagnose
from ._diagnosis import Diagnosis as Diagnosis
from ._diagnosis import Theory as Theory
from ._forecast import forecast as forecast
from ._forecast_table import Forecast as Forecast
from ._forecast_table import ForecastRow as ForecastRow
