"""Tables and figures of docs/correction.md, from results/correction.

python benchmarks/correction/page.py    # writes the figures, prints the tables
"""

import json
from pathlib import Path
from statistics import mean

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "results" / "correction"
FULL, WORD = "Reverse()", " corrected"
NEAR = 1.01
"""Full reverse mode's final loss plus 1 %."""


def read(case: str) -> tuple[list[dict], dict]:
    """Runs, and the seconds of a call of each rule and of each audit."""
    rows = [json.loads(line) for line in (RESULTS / f"{case}.jsonl").read_text().splitlines()]
    return rows, json.loads((RESULTS / "times.json").read_text())[case]["calls"]


def seconds(row: dict, calls: dict) -> list[float]:
    """Since the start, at each evaluation of a run."""
    rule, curve = row["rule"].removesuffix(WORD), row["curve"]
    pairs = zip(curve["rule"], curve["audits"], strict=True)
    return [n * calls[rule] + m * calls.get(rule + WORD, 0.0) for n, m in pairs]


def until(row: dict, calls: dict, loss: float) -> float:
    """Seconds until a hyper-iteration has this loss; infinite if none has."""
    first = next((i for i, v in enumerate(row["values"]) if v <= loss), None)
    if first is None:
        return float("inf")
    steps, clock = [0, *row["curve"]["step"]], [0.0, *seconds(row, calls)]
    i = next(i for i, step in enumerate(steps) if step > first)
    part = (first + 1 - steps[i - 1]) / (steps[i] - steps[i - 1])
    return clock[i - 1] + part * (clock[i] - clock[i - 1])


def compared(case: str) -> dict[str, dict[int, dict]]:
    """Each rule's run of each seed against that of full reverse mode."""
    rows, calls = read(case)
    full = {row["seed"]: row for row in rows if row["rule"] == FULL}
    out: dict[str, dict[int, dict]] = {}
    for row in rows:
        of, end = full[row["seed"]], row["curve"]
        loss = of["curve"]["loss"][-1]
        out.setdefault(row["rule"], {})[row["seed"]] = {
            "loss": end["loss"][-1],
            "above": end["loss"][-1] / loss - 1,
            "gradient": end["gradient"][-1] / of["curve"]["gradient"][-1],
            "time": seconds(row, calls)[-1] / seconds(of, calls)[-1],
            "forward": seconds(row, calls)[-1] / (len(row["values"]) * calls["forward"]),
            "there": until(row, calls, NEAR * loss) / seconds(of, calls)[-1],
            "audits": end["audits"][-1],
        }
    return out


def named(rule: str) -> str:
    plain = rule.removesuffix(WORD).replace("pieces=", "").replace("rank=", "")
    return f"`{plain}`" + (", corrected" if rule.endswith(WORD) else "")


def over_seeds(case: str) -> str:
    """Means; of the losses also the least and the largest."""
    head = "rule | loss against full | least, largest | true gradient | time | time to full + 1 % | audits"
    lines = [f"| {head} |", "|---|" + "--:|" * 6]
    for rule, seeds in compared(case).items():
        rows = list(seeds.values())
        of = lambda key: mean(row[key] for row in rows)  # noqa: B023
        above = [row["above"] for row in rows]
        there = f"{of('there'):.2f}" if of("there") < float("inf") else "not in all"
        lines.append(
            f"| {named(rule)} | {of('above'):+.2%} | {min(above):+.2%}, {max(above):+.2%} | "
            f"{of('gradient'):.2f} | {of('time'):.2f} | {there} | {of('audits'):.0f} |"
        )
    return "\n".join(lines)


def each_seed(case: str) -> str:
    head = "rule | seed | validation loss | against full | true gradient | × forward | audits"
    lines = [f"| {head} |", "|---|" + "--:|" * 6]
    for rule, seeds in compared(case).items():
        for seed, row in sorted(seeds.items()):
            lines.append(
                f"| {named(rule)} | {seed} | {row['loss']:.4f} | {row['above']:+.2%} | "
                f"{row['gradient']:.2f} | {row['forward']:.2f} | {row['audits']:.0f} |"
            )
    return "\n".join(lines)
