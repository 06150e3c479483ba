"""A part of a page."""

from dataclasses import dataclass

from .chart import Chart
from .table import Table


@dataclass(frozen=True)
class Section:
    """A heading, paragraphs, and tables and charts below them."""

    title: str
    text: tuple[str, ...] = ()
    items: tuple[Table | Chart, ...] = ()
