"""Tables on pages, and numbers as they are printed."""

import json
import re
from decimal import Decimal
from pathlib import Path

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "results"
TABLE = re.compile(r"(?:^\|.*\n)+", re.M)
NUMBER = re.compile(r"[-−]?(?:\d+(?:,\d{3})*(?:\.\d+)?|\.\d+)(?:e[-+]?\d+)?")


def page(name):
    return (ROOT / name).read_text("utf-8")


def tables(text):
    """Rows of cells of each table, without marks of bold and code."""
    plain = re.sub(r"```.*?```", "", text, flags=re.S)
    for found in TABLE.findall(plain):
        rows = [re.split(r"(?<!\\)\|", line.strip()[1:-1]) for line in found.splitlines()]
        yield [[re.sub(r"[*`]", "", cell).strip() for cell in row] for row in rows]


def table(name, head):
    """The rows below the head of one table, by their first cell."""
    (found,) = [rows for rows in tables(page(name)) if " | ".join(rows[0]).startswith(head)]
    return {row[0]: row[1:] for row in found[2:]}


def numbers(text):
    return [Decimal(x.replace(",", "").replace("−", "-")) for x in NUMBER.findall(text)]


def says(text, *values):
    """Whether a text has these numbers, in order, each rounded to the digits it is printed with."""
    found = numbers(text)
    return len(found) == len(values) and all(map(rounds, found, values))


def rounds(printed, value):
    half = Decimal(1).scaleb(printed.as_tuple().exponent) / 2
    return abs(Decimal(repr(float(value))) - printed) <= half * Decimal("1.001")


def lines(name):
    return [json.loads(line) for line in (RESULTS / name).read_text("utf-8").splitlines()]


def read(name):
    return json.loads((RESULTS / name).read_text("utf-8"))
