"""Examples as pictures, each with the label it had and the one that is proposed."""

import base64
import io
from dataclasses import dataclass
from html import escape

import numpy as np


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
            f'<div class="card"><img alt="" src="{_picture(self.pixels)}">'
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


def _picture(pixels: np.ndarray) -> str:
    """The address of a small grey image: the least value black, the greatest white."""
    try:
        from PIL import Image
    except ImportError as error:
        raise ImportError(
            "Pictures need pillow: in a clone of bilevax, pip install '.[tools]'."
        ) from error
    x = np.asarray(pixels, float)
    x = (x - x.min()) / (np.ptp(x) or 1.0)
    file = io.BytesIO()
    Image.fromarray(np.rint(255 * x).astype(np.uint8)).save(file, "PNG")
    return "data:image/png;base64," + base64.b64encode(file.getvalue()).decode()
