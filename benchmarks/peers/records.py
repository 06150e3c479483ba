"""Results on disk: one JSON file for each kind of case, written whole after each case."""

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bilevax._files import atomic_write

KINDS = ("agreement", "times", "memory", "growth")
KEYS = ("library", "problem", "T", "want", "rule", "letter", "value")


def read(out: Path, kind: str) -> dict[str, Any]:
    """The cases of a kind by name; none if there is no file."""
    path = out / f"{kind}.json"
    return json.loads(path.read_text())["cases"] if path.exists() else {}


def write(out: Path, kind: str, name: str, case: Mapping[str, Any]) -> None:
    """Put a case in its file, in the place of one of that name."""
    out.mkdir(parents=True, exist_ok=True)
    when = {"date": datetime.now(UTC).date().isoformat()}
    cases = read(out, kind) | {name: dict(case) | when}
    with atomic_write(out / f"{kind}.json") as file:
        file.write((json.dumps({"kind": kind, "cases": cases}, indent=1) + "\n").encode())


def is_there(out: Path, kind: str, name: str, settings: Mapping, environment: Mapping) -> bool:
    """Whether a case was measured to its end with these settings and versions."""
    case = read(out, kind).get(name, {})
    same = lambda key, value: json.dumps(case.get(key)) == json.dumps(value)
    done = case.get("status") == "done"
    return done and same("settings", dict(settings)) and same("environment", dict(environment))


def rows(out: Path, kind: str) -> list[dict[str, Any]]:
    """All rows of a kind; a case that did not come to its end says so in a row."""
    found = []
    for case in read(out, kind).values():
        found += case["rows"]
        if case["status"] != "done":
            label = {k: v for k, v in case["settings"].items() if k in KEYS}
            found.append(label | {"status": "failed", "message": case["message"]})
    return found


def latest(lines: list[str]) -> list[dict[str, Any]]:
    """Rows as a child wrote them: of several with the same keys the last; no unfinished line."""
    kept: dict[tuple, dict] = {}
    for line in lines:
        try:
            row = json.loads(line)
        except json.JSONDecodeError:
            continue
        kept[tuple(row.get(k) for k in KEYS)] = row
    return list(kept.values())
