"""What the measurements are held against."""

from pathlib import Path

from .figures import measured, weighed, wrong
from .libraries import TORCH

Rows = tuple[list[str], list[list[str]]]


def goals(out: Path) -> Rows:
    found = [*_against_torch(out), _memory(out), *_by_hand(out), _accuracy(out)]
    lines = [[text, wanted, got, verdict] for text, wanted, got, verdict in filter(None, found)]
    return ["goal", "wanted", "measured", "", ], lines  # fmt: skip


def _line(text: str, wanted: float, got: float, unit: str = "x"):
    reached = "reached" if got >= wanted else "**missed**"
    return text, f"{wanted:g} {unit}", f"{got:.3g} {unit}", reached


def _times(out: Path, problem: str, want: str) -> dict[str, float]:
    bad = wrong(out)
    rows = [row for row in measured(out) if (row["problem"], row["want"]) == (problem, want)]
    return {r["library"]: r["ms"] for r in rows if not bad(r["library"], problem, want)}


def _against_torch(out: Path):
    wanted = {
        ("hypercleaning", "K=5"): 3,
        ("hypercleaning", "full"): 3,
        ("Omniglot", "K=10"): 2,
        ("Omniglot", "full"): 2,
    }
    for (problem, want), factor in wanted.items():
        by, kept = _times(out, problem, want), _times(out, problem, f"{want}, 1 GB")
        torch = {name: by[name] for name in TORCH if name in by}
        own = [found["bilevax"] for found in (by, kept) if "bilevax" in found]
        if torch and own:
            best = min(torch, key=torch.__getitem__)
            how = ", in 1 GB" if min(own) < own[0] else ""
            text = f"{problem}, {want}: faster than the fastest of PyTorch ({best}{how})"
            yield _line(text, factor, torch[best] / min(own))


def _memory(out: Path):
    rows = [row for row in weighed(out) if row["T"] == 100]
    by = {(row["library"], row["want"]): row["added_bytes"] for row in rows}
    plain, own = by.get(("plain PyTorch", "full")), by.get(("bilevax", "full"))
    if not plain or not own:
        return None
    text = "hypercleaning, T = 100, all steps: less memory than plain unrolling in PyTorch"
    return _line(text, 10, plain / own)


def _by_hand(out: Path):
    """A scan that keeps iterates or everything, against a rule that keeps the same, or what is
    worth it in 1 GB.
    """
    keeps = {"plain JAX, checkpoint": "iterates", "plain JAX": "everything"}
    for problem in ("hypercleaning", "MLP, Adam", "Omniglot"):
        for want in ("full", "K=5", "K=10"):
            by = _times(out, problem, want)
            kept = _times(out, problem, f"{want}, 1 GB").get("bilevax")
            for name in (n for n in keeps if n in by):
                alike = kept if name == "plain JAX" else by["bilevax"]
                but = "" if alike else ", where bilevax keeps iterates"
                text = (
                    f"{problem}, {want}: no slower than JAX by hand that keeps {keeps[name]}{but}"
                )
                yield _line(f"{text} (within 5 %)", 0.95, by[name] / (alike or by["bilevax"]))


def _accuracy(out: Path):
    own = [r for r in measured(out) if (r["problem"], r["library"]) == ("hypercleaning", "bilevax")]
    by = {row["want"]: row for row in own}
    near = [row for row in own if row["error"] < 0.05 and row["want"] != "full"]
    if "full" not in by or not near:
        return None
    best = min(near, key=lambda row: row["ms"])
    text = f"hypercleaning: error below 5 % in half of the time of all steps (`{best['want']}`)"
    return _line(text, 2, by["full"]["ms"] / best["ms"], "x faster")
