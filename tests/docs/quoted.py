"""Tables on pages, and numbers as they are printed."""

import json
import re
from decimal import Decimal
from pathlib import Path
from statistics import median

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


def short(rule):
    """`Krylov(1, 10, K=10)` as the records of benchmarks/krylov call it."""
    shape = re.fullmatch(r"Krylov\((\d+), (\d+)(?:, K=(\d+))?(?:, head=(\d+))?\)", rule)
    if shape:
        more = (f" K{shape[3]}" if shape[3] else "") + (f" head{shape[4]}" if shape[4] else "")
        return f"Krylov {shape[1]}x{shape[2]}{more}"
    rule = rule.replace("Implicit, CG ", "CG ")
    return re.sub(r"^(\w+)\((?:K=)?([\d.]+)\)$", r"\1 \2", rule)


def measured(problem, point, rule, *keys):
    """Medians over the points that a pattern matches."""
    rows = [
        row
        for row in lines("krylov/records.jsonl")
        if (row["problem"], row["rule"]) == (problem, short(rule))
        and re.fullmatch(point, row["point"])
    ]
    return [median(row[key] for row in rows) for key in keys]


def along(rule, key):
    """The least and the greatest along the run of MNIST hypercleaning."""
    found = [measured("mnist", f"it. {i}", rule, key)[0] for i in (0, 10, 30, 60, 100)]
    return [min(found), max(found)]


def noisy(kind, noise, key):
    rows = [r for r in lines("cleaning/records.jsonl") if (r["kind"], r["noise"]) == (kind, noise)]
    return [min(r[key] for r in rows), max(r[key] for r in rows)]
