"""Records to tables, figures and a page. Imports no jax.

`report(paths, out)` writes a page, `figures(paths, folder)` files to keep: a PNG of each chart,
each table as CSV, and all tables in `tables.md`. A module here that is named as an experiment,
with underscores, says what its runs show: `sections(runs) -> list[Section]`. Runs of any other
experiment are shown as they are.
"""

try:
    import matplotlib as _matplotlib_is_there  # noqa: F401
    import plotly as _plotly_is_there  # noqa: F401
except ModuleNotFoundError as error:
    raise ImportError(
        "report draws with plotly and matplotlib: pip install 'bilevax[tools]'."
    ) from error

from ..._pages.chart import Arrows, Axis, Chart, Contour, HeatMap, Series
from ..._pages.page import Page
from ..._pages.section import Section
from ..._pages.table import Column, Table
from ._report import experiments, figures, read, report, tables

__all__ = [
    "Arrows", "Axis", "Chart", "Column", "Contour", "HeatMap", "Page", "Section", "Series",
    "Table", "experiments", "figures", "read", "report", "tables",
]  # fmt: skip
