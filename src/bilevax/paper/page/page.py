"""A page: sections of text, tables and charts in one HTML file that asks nothing of a network."""

import base64
import hashlib
import html
import json
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from itertools import groupby

from plotly.offline import get_plotlyjs

from ..._pictures.palette import pairs
from . import browser
from .chart import Chart
from .section import Item, Section

MARK = '<meta name="generator" content="bilevax report">'


@dataclass(frozen=True)
class Page:
    """A title, a line below it, and sections."""

    title: str
    line: str
    sections: tuple[Section, ...]

    def html(self) -> str:
        body = "\n".join(_section(i, section) for i, section in enumerate(self.sections))
        links = "".join(
            f'<li><a href="#s{i}">{html.escape(s.title)}</a></li>'
            for i, s in enumerate(self.sections)
        )
        scripts = [get_plotlyjs(), _file("page.js").replace("/*PAIRS*/", json.dumps(pairs()))]
        title = html.escape(self.title)
        return "\n".join(
            [
                "<!doctype html>",
                f'<html lang="en"><head><meta charset="utf-8">{MARK}',
                f'<meta http-equiv="Content-Security-Policy" content="{_policy(scripts)}">',
                '<meta name="viewport" content="width=device-width, initial-scale=1">',
                '<meta name="color-scheme" content="light dark">',
                f"<title>{title}</title><style>{_file('page.css')}</style></head>",
                f'<body><header><h1>{title}</h1><p class="line">{html.escape(self.line)}</p>',
                f"<nav><ol>{links}</ol></nav>",
                '<noscript><p class="note">The charts need JavaScript; the tables do not.</p>'
                f"</noscript></header>\n<main>{body}</main>",
                *(f"<script>{script}</script>" for script in scripts),
                "</body></html>\n",
            ]
        )


def _policy(scripts: list[str]) -> str:
    """Nothing is fetched from anywhere, and no script runs but these, byte for byte."""
    digests = [base64.b64encode(hashlib.sha256(s.encode()).digest()).decode() for s in scripts]
    allowed = " ".join(f"'sha256-{digest}'" for digest in digests)
    return (
        f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; "
        "img-src data: blob:; base-uri 'none'; form-action 'none'"
    )


def _section(index: int, section: Section) -> str:
    text = "".join(f"<p>{html.escape(paragraph)}</p>" for paragraph in section.text)
    items = "\n".join(_row(list(some)) for _, some in groupby(section.items, type))
    return f'<section id="s{index}"><h2>{html.escape(section.title)}</h2>{text}\n{items}</section>'


def _row(items: Sequence[Item]) -> str:
    """Charts stand side by side, all else one below the other."""
    charts = "\n".join(_figure(item) for item in items if isinstance(item, Chart))
    others = "\n".join(item.html() for item in items if not isinstance(item, Chart))
    return others or f'<div class="charts">{charts}</div>'


def _figure(chart: Chart) -> str:
    title, text = html.escape(chart.title), html.escape(chart.text)
    wide = " wide" if chart.heat and len(chart.heat.columns) > browser.FEW else ""
    return (
        f'<figure class="chart{wide}"><h3>{title}</h3>'
        f'<div class="plot" role="img" aria-label="{title}"></div>'
        f'<script type="application/json">{browser.to_json(chart)}</script>'
        f"<figcaption>{text}</figcaption></figure>"
    )


def _file(name: str) -> str:
    return (files("bilevax.paper.page") / name).read_text("utf-8")
