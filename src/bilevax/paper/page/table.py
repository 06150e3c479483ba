"""Tables: of text, for the page, for Markdown, for a spreadsheet."""

import csv
import html
import io
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, stdev


@dataclass(frozen=True)
class Column:
    """A heading; `paper`: the paper's own values; `words`: not numbers."""

    name: str
    paper: bool = False
    words: bool = False


@dataclass(frozen=True)
class Table:
    """Rows of text under columns. `name` is that of its file."""

    name: str
    title: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...] = ()

    def html(self) -> str:
        head = "".join(_cell("th", c, c.name) for c in self.columns)
        body = "\n".join(
            "<tr>" + "".join(_cell("td", *pair) for pair in self._cells(row)) + "</tr>"
            for row in self.rows
        )
        notes = "".join(f'<p class="note">{html.escape(note)}</p>' for note in self.notes)
        return (
            f'<figure class="table"><figcaption>{html.escape(self.title)}</figcaption>'
            f'<div class="scroll"><table><thead><tr>{head}</tr></thead>\n<tbody>{body}</tbody>'
            f"</table></div>{notes}</figure>"
        )

    def markdown(self) -> str:
        line = lambda cells: "| " + " | ".join(cells) + " |"
        heads = [_escape(column.name) for column in self.columns]
        rule = [":--" if column.words else "--:" for column in self.columns]
        rows = [line(map(_escape, row)) for row in self.rows]
        table = "\n".join([line(heads), line(rule), *rows])
        return "\n\n".join([f"### {_escape(self.title)}", table, *map(_escape, self.notes)]) + "\n"

    def csv(self) -> str:
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow([_inert(column.name) for column in self.columns])
        writer.writerows([_inert(cell) for cell in row] for row in self.rows)
        return text.getvalue()

    def _cells(self, row: Sequence[str]):
        return zip(self.columns, row, strict=True)


def _cell(tag: str, column: Column, text: str) -> str:
    kind = " ".join(name for name in ("paper", "words") if getattr(column, name))
    kind = f' class="{kind}"' if kind else ""
    return f"<{tag}{kind}>{html.escape(text)}</{tag}>"


def _inert(text: str) -> str:
    """A cell that no spreadsheet takes for a formula: numbers stay, other text gets a quote."""
    number = re.fullmatch(r"[-+]?[\d.]+(e[-+]?\d+)?( ± [\d.]+)?|[-+]?(nan|inf)", text)
    return f"'{text}" if text.startswith(("=", "+", "-", "@", "\t", "\r")) and not number else text


def _escape(text: str) -> str:
    """Markdown that shows the text as it is, on one line."""
    text = html.escape(" ".join(text.split()), quote=False)
    return text.replace("\\", "\\\\").replace("|", "\\|").replace("`", "\\`").replace("*", "\\*")


def spread(values: Sequence[float], digits: int, sign: str = "") -> str:
    """Mean, and with several values their standard deviation; with sign "+", +1.5 for 1.5."""
    if not values:
        return "–"
    mean = fmean(values) if all(map(math.isfinite, values)) else math.nan
    if len(values) == 1 or math.isnan(mean):
        return f"{mean:{sign}.{digits}f}"
    return f"{mean:{sign}.{digits}f} ± {stdev(values):.{digits}f}"
