"""The page with the most suspicious rows: one file, no scripts, every text escaped."""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from html import escape
from typing import NamedTuple

import numpy as np

from ..._pictures.cards import Card

MOST_TEXT = 60
SHORT = 16
"""Texts up to this length stay on one line: dates, numbers, single words."""

STYLE = """
:root { color-scheme: light dark; --line: light-dark(#d9dde3, #3a4048);
  --soft: light-dark(#5c6570, #9aa4b0); --back: light-dark(#ffffff, #15181c);
  --card: light-dark(#f6f7f9, #1e2329); --red: light-dark(#b3261e, #ff8a80);
  --green: light-dark(#1b6e3c, #7bd99a); }
* { box-sizing: border-box }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 64rem; margin: 2.5rem auto;
  padding: 0 1.25rem; background: var(--back) }
h1 { font-size: 1.5rem; margin: 0 0 .25rem; overflow-wrap: anywhere }
h2 { font-size: 1.1rem; margin: 2.25rem 0 .5rem }
p { margin: .4rem 0; max-width: 46rem } .soft { color: var(--soft) }
table { border-collapse: collapse; font-variant-numeric: tabular-nums }
.wide { overflow-x: auto; --shade: light-dark(#0003, #000c); background:
  linear-gradient(to right, var(--back) 50%, #0000) left / 1.2rem 100% no-repeat local,
  linear-gradient(to left, var(--back) 50%, #0000) right / 1.2rem 100% no-repeat local,
  linear-gradient(to right, var(--shade), #0000) left / .6rem 100% no-repeat,
  linear-gradient(to left, var(--shade), #0000) right / .6rem 100% no-repeat }
.pair { display: flex; flex-wrap: wrap; column-gap: 4rem } .pair > div { max-width: 100% }
th, td { text-align: left; padding: .3rem .9rem .3rem 0; border-bottom: 1px solid var(--line);
  vertical-align: top; max-width: 16rem; overflow-wrap: break-word }
th { color: var(--soft); font-weight: 500; white-space: nowrap }
td.n, th.n { text-align: right } td.n, th.n, td.place { white-space: nowrap }
.bar { display: inline-block; height: .6rem; background: var(--red); border-radius: 2px;
  vertical-align: middle; min-width: 1px }
.given { color: var(--red) } .proposed { color: var(--green) }
ol { padding-left: 1.25rem; max-width: 46rem } .note { color: var(--soft); font-size: .8rem }
.cards { display: grid; grid-template-columns: repeat(auto-fill, minmax(8.5rem, 1fr)); gap: .75rem }
.card { background: var(--card); border: 1px solid var(--line); border-radius: 8px;
  padding: .6rem; font-size: .85rem; overflow-wrap: anywhere }
.card img { width: 100%; image-rendering: pixelated; border-radius: 4px; display: block;
  margin-bottom: .4rem; background: #000 }
"""
POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"


class Finding(NamedTuple):
    """One suspicious row."""

    place: str
    given: str
    found: str
    sure: float
    """The probability of the label that the classifier proposes."""
    probability: float
    """That of the label in the table."""
    weight: float
    cells: Sequence[tuple[str, str]]
    pixels: np.ndarray | None


class Summary(NamedTuple):
    """The whole of a cleaning."""

    name: str
    trusted: str
    rows: int
    trusted_rows: int
    suspect: int
    classes: Sequence[tuple[str, int, int]]
    """Label, rows with it, suspect ones among them."""
    columns: Mapping[str, str]
    """How each column was used, in words."""
    hidden: int
    """Columns that are not shown."""
    pairs: Sequence[tuple[str, str, int]]
    """Label, proposed label, suspect rows: the most frequent first."""
    threshold: float
    """Labels less probable are suspect."""
    out: str
    """The table that was written."""


def page(summary: Summary, findings: Sequence[Finding]) -> str:
    """The page, as text; findings may be the first of more."""
    tables = f'<div class="pair">{_classes(summary)}{_pairs(summary)}</div>'
    body = _head(summary) + tables + _above(summary, len(findings))
    if findings:
        body += _table(findings) if findings[0].pixels is None else _cards(findings)
    body += _columns(summary)
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>Suspect labels in {escape(summary.name)}</title><style>{STYLE}</style></head>"
        f"<body>{body}</body></html>\n"
    )


def _head(s: Summary) -> str:
    part = s.suspect / s.rows
    return (
        f"<h1>Suspect labels in {escape(s.name)}</h1>"
        f"<p><b>{s.suspect:,} of {s.rows:,}</b> labels ({part:.1%}) are suspect, judged with "
        f"{s.trusted_rows:,} trusted rows of {escape(s.trusted)}.</p>"
        '<p class="soft">A label is suspect if a classifier gives it a probability below '
        f"{s.threshold:g} (<code>--threshold</code>). The classifier learned from all rows, each "
        "with a weight between 0 and 1. The weights were tuned so that it does well on the trusted "
        f"rows. {escape(s.out)} has all of these numbers for every row.</p>" + _next(s)
    )


def _next(s: Summary) -> str:
    steps = (
        "Look at the suspect rows below. The first ones are the most certain.",
        f"Correct their labels. The column <code>proposed</code> of {escape(s.out)} has a label "
        "for each. Or leave out the rows where <code>suspect</code> is true.",
        f"Add the rows that you checked to {escape(s.trusted)}, and run <code>bilevax clean</code> "
        "again. With more trusted rows it makes fewer mistakes.",
        "If it accuses right labels, lower <code>--threshold</code>. If it misses wrong labels, "
        "raise it.",
    )
    return f"<h2>What to do next</h2><ol>{''.join(f'<li>{step}</li>' for step in steps)}</ol>"


def _pairs(s: Summary) -> str:
    """Which label is taken for which."""
    most = max((n for *_, n in s.pairs), default=1)
    rows = "".join(
        f'<tr><td class="given">{escape(_cut(a))}</td><td class="proposed">{escape(_cut(b))}</td>'
        f'<td class="n">{n:,}</td>{_bar(n / most)}</tr>'
        for a, b, n in s.pairs
    )
    head = '<th>label in the table</th><th>proposed</th><th class="n">suspect rows</th>'
    return _bars("Labels that are confused", head, rows) if rows else ""


def _classes(s: Summary) -> str:
    rows = "".join(
        f'<tr><td>{escape(_cut(label))}</td><td class="n">{n:,}</td><td class="n">{bad:,}</td>'
        f'<td class="n">{bad / n:.0%}</td>{_bar(bad / n)}</tr>'
        for label, n, bad in s.classes
    )
    head = '<th>label</th><th class="n">rows</th><th class="n">suspect</th><th class="n">share</th>'
    return _bars("Suspect rows of each label", head, rows)


def _bar(share: float) -> str:
    return f'<td><span class="bar" style="width:{10 * share:.2f}rem"></span></td>'


def _bars(title: str, head: str, rows: str) -> str:
    """A column for the bars has no name."""
    return (
        f'<div><h2>{title}</h2><div class="wide"><table><tr>{head}<th></th></tr>'
        f"{rows}</table></div></div>"
    )


def _columns(s: Summary) -> str:
    names = defaultdict(list)
    for name, how in s.columns.items():
        names[how].append(name)
    rows = "".join(
        f'<tr><td>{escape(how)}</td><td class="n">{len(which):,}</td>'
        f"<td>{escape(_cut(', '.join(which)))}</td></tr>"
        for how, which in names.items()
    )
    return (
        '<h2>How columns were read</h2><div class="wide"><table><tr><th>as</th>'
        f'<th class="n">columns</th><th>which</th></tr>{rows}</table></div>'
    )


def _above(s: Summary, shown: int) -> str:
    if not shown:
        return "<h2>No suspect rows</h2>"
    columns = f" Columns that are not shown: {s.hidden}." if s.hidden else ""
    which = "All suspect rows" if shown == s.suspect else f"The {shown} most suspicious rows"
    return f'<h2>{which}</h2><p class="soft">The least probable label comes first.{columns}</p>'


def _table(shown: Sequence[Finding]) -> str:
    names = "".join(f"<th>{escape(_cut(name))}</th>" for name, _ in shown[0].cells)
    rows = "".join(_line(f) for f in shown)
    head = (
        '<th>row</th><th>label</th><th class="n">its probability</th><th>proposed</th>'
        '<th class="n">its probability</th><th class="n">weight'
    )
    return f'<div class="wide"><table><tr>{head}</th>{names}</tr>{rows}</table></div>'


def _line(f: Finding) -> str:
    kind = lambda text: "place" if len(text) <= SHORT else "long"
    cells = "".join(f'<td class="{kind(text)}">{escape(_cut(text))}</td>' for _, text in f.cells)
    return (
        f'<tr><td class="place">{escape(f.place)}</td>'
        f'<td class="given">{escape(_cut(f.given))}</td>'
        f'<td class="n">{_percent(f.probability)}</td>'
        f'<td class="proposed">{escape(_cut(f.found))}</td><td class="n">{f.sure:.0%}</td>'
        f'<td class="n">{f.weight:.3f}</td>{cells}</tr>'
    )


def _cards(shown: Sequence[Finding]) -> str:
    return f'<div class="cards">{"".join(_card(f) for f in shown)}</div>'


def _card(f: Finding) -> str:
    assert f.pixels is not None
    note = f"{f.place}, probability {_percent(f.probability)}, weight {f.weight:.2f}"
    return Card(f.pixels, _cut(f.given), _cut(f.found), f.sure, note).html()


def _percent(probability: float) -> str:
    return f"{probability:.1%}"


def side(features: int) -> int:
    """The side of the square picture that so many numbers are."""
    out = math.isqrt(features)
    if out * out != features or not 8 <= out <= 64:
        raise ValueError(
            f"--image needs rows of 8 x 8 to 64 x 64 numbers, got {features} of them; leave it out."
        )
    return out


def _cut(text: str) -> str:
    return text if len(text) <= MOST_TEXT else text[:MOST_TEXT] + "…"
