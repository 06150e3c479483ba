"""Records to tables, figures and a page.

`Report(paths)` reads runs; its `write(out)` writes a page, its `figures(folder)` files to keep: a
PNG of each chart, each table as CSV, and all tables in `tables.md`. What the runs of an experiment
show is said by its `sections`; runs of an experiment that is not known are shown as they are.
"""

try:
    import matplotlib as _matplotlib_is_there  # noqa: F401
    import plotly as _plotly_is_there  # noqa: F401
except ModuleNotFoundError as error:
    raise ImportError(
        "report draws with plotly and matplotlib: in a clone of bilevax, pip install '.[tools]'."
    ) from error

from ..page.chart import Arrows, Axis, Chart, Contour, HeatMap, Series
from ..page.page import Page
from ..page.section import Section
from ..page.table import Column, Table
from .pages import Report, figures, report

__all__ = [
    "Arrows", "Axis", "Chart", "Column", "Contour", "HeatMap", "Page", "Report", "Section",
    "Series", "Table", "figures", "report",
]  # fmt: skip
