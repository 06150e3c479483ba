"""The tables of docs/benchmarks.md, from the records; each stands between marks of its name."""

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from . import records
from .figures import kind, measured, ratios, title, weighed, wrong
from .goals import goals
from .growth_table import growth
from .libraries import LIBRARIES

Row = dict[str, Any]
NOTHING = "*Not measured yet: `make bench`.*\n"


def table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    if not rows:
        return NOTHING
    line = lambda cells: "| " + " | ".join(cells) + " |\n"
    rule = ["---", *["--:"] * (len(heads) - 1)]
    clean = lambda cell: cell.replace("|", "\\|").replace("\n", " ")
    return line(heads) + line(rule) + "".join(line([clean(c) for c in row]) for row in rows)


def agreement(out: Path) -> str:
    """The largest distance of a library's answers, by what was asked."""
    rows = records.rows(out, "agreement")
    kinds = ["full", "K", "checkpointed", "implicit"]
    lines = []
    for library in LIBRARIES:
        own = [row for row in rows if row["library"] == library]
        if own:
            cell = lambda which, own=own: _verdict(
                [r for r in own if kind(r.get("want", which)) == which]
            )
            lines.append([library, *map(cell, kinds)])
    return table(["", "all steps", "last K steps", "checkpointed", "implicit"], lines)


def _verdict(rows: Sequence[Row]) -> str:
    got = [row["distance"] for row in rows if row["status"] in ("agrees", "differs")]
    failed = [row for row in rows if row["status"] == "failed"]
    off = {row["problem"] for row in rows if row["status"] == "differs"}
    if off:
        fine = [r["distance"] for r in rows if r["status"] == "agrees" and r["problem"] not in off]
        where = f" on {', '.join(sorted(off))}" if fine else ""
        return f"**wrong**{where}, by {max(got):.1e}" + (f"; else {max(fine):.0e}" if fine else "")
    if got:
        return f"{max(got):.0e}" + (" (fails on some)" if failed else "")
    return "fails" if failed else "-"


def failures(out: Path) -> str:
    """What did not run, in its own words."""
    rows = [row | {"where": k} for k in records.KINDS for row in _bad(out, k)]
    text = lambda row, key: str(row.get(key) or "")
    cells = [
        [
            row["where"],
            text(row, "library"),
            text(row, "problem"),
            text(row, "want"),
            row["message"],
        ]
        for row in rows
    ]
    if not cells and records.rows(out, "agreement"):
        return "Nothing failed.\n"
    return table(["in", "library", "problem", "asked for", "message"], cells)


def _bad(out: Path, where: str) -> list[Row]:
    return [row for row in records.rows(out, where) if row.get("status") == "failed"]


def _times_of_bilevax(out: Path) -> dict[tuple[str, str], float]:
    """(problem, want) -> milliseconds."""
    own = [row for row in measured(out) if row["library"] == "bilevax"]
    return {(title(row), row["want"]): row["ms"] for row in own}


def times(out: Path) -> str:
    """Milliseconds of bilevax, and everybody's time over that."""
    own = _times_of_bilevax(out)
    others, bad, lines = [name for name in LIBRARIES if name != "bilevax"], wrong(out), []
    for (problem, want), by in ratios(out).items():
        mark = lambda name, key=(problem, want): " (wrong)" if bad(name, *key) else ""
        cells = [f"{by[name]:.2f}{mark(name)}" if name in by else "-" for name in others]
        lines.append([f"{problem}, {want}", f"{own[problem, want]:.3g}", *cells])
    return table(["", "bilevax, ms", *others], lines)


def rules(out: Path) -> str:
    """What each rule of bilevax costs and how far it is off; how long JAX by hand compiles."""
    by_hand = {
        (row["problem"], row["want"]): f"{row['compile_s']:.1f}"
        for row in measured(out)
        if row["library"] in ("plain JAX, checkpoint", "plain JAX")  # of two the second
    }
    lines = []
    for row in measured(out):
        if row["library"] == "bilevax" and not row["problem"].startswith("toy"):
            error = f"{row['error']:.2g}" if "error" in row else "-"
            size = f"{row['program_bytes'] / 1e6:.3g}"
            cells = [f"{row['ms']:.3g}", error, size, f"{row['compile_s']:.1f}"]
            same = by_hand.get((row["problem"], row["want"].removesuffix(", 1 GB")), "-")
            lines.append([f"{row['problem']}, `{row['want']}`", *cells, same])
    head = ("ms", "relative error", "program, MB", "compiling, s", "JAX by hand, s")
    return table(["", *head], lines)


def memory(out: Path) -> str:
    rows = weighed(out)
    horizons = sorted({row["T"] for row in rows})
    found = {(row["library"], row["want"], row["T"]): row["added_bytes"] / 1e6 for row in rows}
    methods = dict.fromkeys((row["library"], row["want"]) for row in rows)
    size = lambda MB: f"{MB:.3g}" if MB < 1000 else f"{MB:.0f}"
    cell = lambda key: size(found[key]) if key in found else "-"
    lines = [[f"{a}, {b}", *[cell((a, b, T)) for T in horizons]] for a, b in methods]
    return table(["MB", *[f"T = {T}" for T in horizons]], lines)


def slower(out: Path) -> str:
    """Where somebody is faster than every rule of bilevax that gives the same right numbers."""
    bad, lines, own = wrong(out), [], _times_of_bilevax(out)
    for (problem, want), by in ratios(out).items():
        fair = {n: r for n, r in by.items() if n != "bilevax" and not bad(n, problem, want)}
        best = min(own[key] for key in own if key[0] == problem and _same(key[1], want))
        for name, ratio in fair.items():
            if (ratio := ratio * own[problem, want] / best) < 0.95:
                lines.append([f"{problem}, {want}", name, f"{ratio:.2f}"])
    if not lines and measured(out):
        return "Nobody with the right numbers is faster by more than 5 %.\n"
    return table(["", "library", "its time / bilevax"], lines)


def _same(want: str, other: str) -> bool:
    """Whether two wants have one answer, and a budget of bytes is all they differ in."""
    return want.removesuffix(", 1 GB") == other.removesuffix(", 1 GB")


def machine(out: Path) -> str:
    """Where, when, with what."""
    cases = [case for which in records.KINDS for case in records.read(out, which).values()]
    if not cases:
        return NOTHING
    dates = sorted({case["date"] for case in cases})
    said = []
    for env in {str(case["environment"]): case["environment"] for case in cases}.values():
        packages = ", ".join(f"{k} {v}" for k, v in env["packages"].items() if v)
        said.append(
            f"{env['processor']}, {env['cores']} cores; Python {env['python']}; {packages}."
        )
    quick = any(case["settings"].get("quick") for case in cases)
    warning = "**Quick mode, on small problems: not to be quoted.** " if quick else ""
    when = dates[0] if len(dates) == 1 else f"{dates[0]} to {dates[-1]}"
    return f"{warning}{when}. " + " ".join(said) + "\n"


TABLES: dict[str, Callable[[Path], str]] = {
    "machine": machine, "goals": lambda out: table(*goals(out)), "agreement": agreement,
    "failures": failures, "times": times, "slower": slower, "rules": rules, "memory": memory,
    "growth": lambda out: table(*growth(out)),
}  # fmt: skip


def fill(text: str, out: Path, tables: dict[str, Callable[[Path], str]] = TABLES) -> str:
    """The page with its tables drawn again."""
    for name, make in tables.items():
        marks = re.compile(rf"(<!-- {name} -->\n).*?(<!-- end -->)", re.DOTALL)
        text = marks.sub(lambda found, make=make: found[1] + make(out) + found[2], text)
    return text
