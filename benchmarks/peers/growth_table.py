"""Slopes of cost in T, K, M and N, beside those of the paper's Table 1."""

from pathlib import Path

from . import records
from .goals import Rows

POWERS = {  # of Table 1; a step costs c, which here is about M
    "Forward": ({"T": 1, "M": 1, "N": 1}, {"T": 0, "M": 1, "N": 1}),
    "Reverse": ({"T": 1, "M": 1, "N": 0}, {"T": 1, "M": 1, "N": 0}),
    "Reverse, segments": ({"T": 1, "M": 1, "N": 0}, {"T": 0.5, "M": 1, "N": 0}),
    "Reverse, K": ({"T": 0, "K": 1, "M": 1, "N": 0}, {"T": 0, "K": 1, "M": 1, "N": 0}),
}


def growth(out: Path) -> Rows:
    from .growth import slope

    rows = records.rows(out, "growth")
    lines = []
    for rule, (time, memory) in POWERS.items():
        for what, powers, key in (("time", time, "extra_ms"), ("memory", memory, "bytes")):
            cells = []
            for letter in "TKMN":
                at = [r for r in rows if (r.get("rule"), r.get("letter")) == (rule, letter)]
                got = slope([r["value"] for r in at], [r[key] for r in at]) if at else None
                shown = "-" if got is None else f"{got:.2f}"
                cells.append(f"{shown} ({powers[letter]:g})" if letter in powers else "-")
            lines.append([f"`{rule}`, {what}", *cells])
    return ["power of", "T", "K", "M", "N"], lines if rows else []
