"""Runs that belong together, and the colours of what is compared in them."""

import json
from collections.abc import Collection, Iterable, Sequence

from ..._pictures.palette import OTHERS, Colour, shade
from ..._rules.parse import parse_rule
from ..._rules.reverse import Reverse
from ..records import Run

VARIED = ("seed", "rules")
"""Settings that may differ between runs of one comparison."""


def group(runs: Iterable[Run]) -> list[list[Run]]:
    """Runs with the same settings, but for seed and rules."""
    groups: dict[str, list[Run]] = {}
    for run in runs:
        same = {k: v for k, v in run.config.items() if k not in VARIED}
        groups.setdefault(json.dumps(same, sort_keys=True, default=str), []).append(run)
    return list(groups.values())


def suffix(index: int) -> str:
    """What tells the files of the second group from those of the first."""
    return f"-{index + 1}" if index else ""


def ladder(depths: Collection[int]) -> dict[int, Colour]:
    """A colour for each K, from dark to bright."""
    ordered = sorted(depths)
    return {K: shade(i / max(len(ordered) - 1, 1)) for i, K in enumerate(ordered)}


def depth(rule: str, T: int | None) -> int | None:
    """K of truncated back-propagation, T if it goes all the way; no other rule has one."""
    try:
        parsed = parse_rule(rule)
    except ValueError:  # another word of its experiment, such as T=1
        return None
    if isinstance(parsed, Reverse) and parsed == Reverse(K=parsed.K):
        return parsed.K or T
    return None


def colours(rules: Sequence[str], T: int | None) -> dict[str, Colour]:
    """Rules in order, first by K: those with a K on the ladder, then the others."""
    depths = {rule: depth(rule, T) for rule in rules}
    steps = ladder({K for K in depths.values() if K is not None})
    ordered = sorted(rules, key=lambda rule: (depths[rule] is None, depths[rule] or 0, rule))
    others = [rule for rule in ordered if depths[rule] is None]
    beside = {rule: OTHERS[i % len(OTHERS)] for i, rule in enumerate(others)}
    return {r: beside[r] if (K := depths[r]) is None else steps[K] for r in ordered}
