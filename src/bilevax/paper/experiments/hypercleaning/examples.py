"""Which labels a run found, missed and wrongly accused: examples of each, to be looked at."""

import math
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jaxtyping import Array

from ...._pictures.cards import Card, Cards
from ...records import Row

THRESHOLD = -4.0
MOST = 24
"""Examples of a kind that are kept."""
KINDS = {
    "found": ("Found", "Wrong labels that have little weight now."),
    "missed": ("Missed", "Wrong labels that kept their weight."),
    "accused": ("Wrongly accused", "Right labels that lost their weight."),
}


def examples(lam: Array, w: Array, S: dict[str, Any]) -> Row:
    """A record: of each kind the examples with the least λ (of missed ones, with the greatest)."""
    lam_, wrong, y = (np.asarray(a) for a in (lam, S["wrong"], S["y"]))
    sure = np.asarray(jax.nn.softmax(S["x"] @ w.T))
    marked, order = lam_ < THRESHOLD, np.argsort(lam_)
    masks = {"found": marked & wrong, "missed": ~marked & wrong, "accused": marked & ~wrong}
    row: Row = {}
    for kind, mask in masks.items():
        rows = [i for i in (order[::-1] if kind == "missed" else order) if mask[i]][:MOST]
        row[f"{kind}_count"] = int(mask.sum())
        row[f"{kind}_pixels"] = [_hex(S["x"][i, :-1]) for i in rows]  # the last is the bias
        row[f"{kind}_given"] = [int(y[i]) for i in rows]
        row[f"{kind}_proposed"] = [int(sure[i].argmax()) for i in rows]
        row[f"{kind}_sure"] = [float(sure[i].max()) for i in rows]
        row[f"{kind}_lam"] = [float(lam_[i]) for i in rows]
    return row


def sentences(
    counts: Sequence[int], config: Row, rule: str, step: int
) -> tuple[str, tuple[str, ...]]:
    """A title that says how many labels were found, of how many, and how many were wrongly
    accused; and what that means.
    """
    found, wrong, false = counts
    many = f"{config['train']} training examples" if "train" in config else "The examples"
    return f"{found} of {wrong} wrong labels found, {false} right ones accused", (
        f"{many} have {wrong} wrong labels. Each example i has a number λᵢ, and the weight "
        "1 / (1 + exp(−λᵢ)) in the training of a linear classifier. Every λᵢ starts at 0, which is "
        "a weight of 0.5. A hypergradient moves all λᵢ so that the classifier does well on clean "
        "validation data. A label counts as found here when λᵢ < −4, a weight below 0.018.",
        f"These are the results of {rule} after {step} hyper-iterations. The tables "
        "below compare it with other rules.",
    )


def cards(row: Row) -> list[Cards]:
    """What a record shows; of a damaged one, nothing."""
    try:
        return [_cards(row, kind) for kind in KINDS if row[f"{kind}_count"]]
    except (KeyError, TypeError, ValueError):
        return []


def _cards(row: Row, kind: str) -> Cards:
    count, shown = row[f"{kind}_count"], len(row[f"{kind}_pixels"])
    title, text = KINDS[kind]
    which = "all of them" if shown == count else f"{shown} of {count}"
    names = ("pixels", "given", "proposed", "sure", "lam")
    columns = [row[f"{kind}_{name}"] for name in names]
    return Cards(
        f"{title}: {count}",
        f"{text} Shown: {which}. Struck out is the label in the data; then the label that the "
        "classifier proposes, and its probability.",
        tuple(_card(*values) for values in zip(*columns, strict=True)),
    )


def _card(pixels: str, given: int, proposed: int, sure: float, lam: float) -> Card:
    return Card(_image(pixels), str(given), str(proposed), float(sure), f"λ = {lam:.1f}")


def _hex(x: Sequence[float]) -> str:
    return np.rint(255 * np.clip(np.asarray(x, float), 0, 1)).astype(np.uint8).tobytes().hex()


def _image(text: str) -> np.ndarray:
    data = np.frombuffer(bytes.fromhex(text), np.uint8)
    side = math.isqrt(len(data))
    return data.reshape(side, side)
