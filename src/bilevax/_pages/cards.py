"""Examples as pictures, each with the label it had and the one that is proposed."""

from dataclasses import dataclass
from html import escape

import numpy as np

from .picture import picture


@dataclass(frozen=True)
class Card:
    """One example. `sure` is the probability of the proposed label; `note` a line below."""

    pixels: np.ndarray
    given: str
    proposed: str
    sure: float
    note: str = ""

    def html(self) -> str:
        given = f'<span class="given">{escape(self.given)}</span> → '
        return (
            f'<div class="card"><img alt="" src="{picture(self.pixels)}">'
            f"{given if self.given != self.proposed else ''}"
            f'<span class="proposed">{escape(self.proposed)}</span> {self.sure:.0%}'
            f'<br><span class="note">{escape(self.note)}</span></div>'
        )


@dataclass(frozen=True)
class Cards:
    """A heading, a sentence, and examples below."""

    title: str
    text: str
    cards: tuple[Card, ...]

    def html(self) -> str:
        cards = "".join(card.html() for card in self.cards)
        return (
            f'<figure class="cards"><figcaption>{escape(self.title)}</figcaption>'
            f'<p class="note">{escape(self.text)}</p><div class="sheet">{cards}</div></figure>'
        )
