"""A part of a page."""

from dataclasses import dataclass

from ..._pictures.cards import Cards
from .chart import Chart
from .table import Table

Item = Table | Chart | Cards


@dataclass(frozen=True)
class Section:
    """A heading, paragraphs, and tables, charts and examples below them."""

    title: str
    text: tuple[str, ...] = ()
    items: tuple[Item, ...] = ()
