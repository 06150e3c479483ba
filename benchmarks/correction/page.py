"""Tables and figure of docs/correction.md, from results/correction.

python benchmarks/correction/page.py    # writes both
"""

import json
import re
from pathlib import Path
from statistics import mean

ROOT = Path(__file__).parents[2]
RESULTS, PAGE = ROOT / "results" / "correction", ROOT / "docs" / "correction.md"
TASKS = ("results/task-interaction", "results/correction/task-interaction")
FULL, WORD = "Reverse()", " corrected"
NEAR = 1.01
"""Full reverse mode's final loss plus 1 %."""


def read(case: str) -> tuple[list[dict], dict]:
    """Runs, and the seconds of a call of each rule and of each audit."""
    rows = lines(RESULTS / f"{case}.jsonl")
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
    """Each rule's run of each seed against full reverse mode's, after as many hyper-iterations."""
    rows, calls = read(case)
    full = {row["seed"]: row for row in rows if row["rule"] == FULL}
    out: dict[str, dict[int, dict]] = {}
    for row in rows:
        if row["seed"] in full:
            out.setdefault(row["rule"], {})[row["seed"]] = against(row, full[row["seed"]], calls)
    return out


def against(row: dict, full: dict, calls: dict) -> dict:
    end, curve = full["curve"], row["curve"]
    n = int(end["step"][-1])
    at = curve["step"].index(n)
    taken, whole = seconds(row, calls)[at], seconds(full, calls)[-1]
    return {
        "loss": curve["loss"][at],
        "above": curve["loss"][at] / end["loss"][-1] - 1,
        "gradient": curve["gradient"][at] / end["gradient"][-1],
        "time": taken / whole,
        "forward": taken / (n * calls["forward"]),
        "there": until(row, calls, NEAR * end["loss"][-1]) / whole,
        "audits": curve["audits"][at],
    }


def named(rule: str) -> str:
    plain = rule.removesuffix(WORD).replace("pieces=", "").replace("rank=", "")
    return f"`{plain}`" + (", corrected" if rule.endswith(WORD) else "")


def over_seeds(case: str) -> str:
    """Means over seeds, against full reverse mode; of the losses also the least and the largest."""
    head = "rule | seeds | loss | least, largest | gradient | time | time to full + 1 % | audits"
    table = [f"| {head} |", "|---|" + "--:|" * 7]
    for rule, seeds in compared(case).items():
        rows = list(seeds.values())
        of = lambda key: mean(row[key] for row in rows)  # noqa: B023
        above = [row["above"] for row in rows]
        there = f"{of('there'):.2f}" if of("there") < float("inf") else "not reached"
        ends = f"{of('above'):+.2%} | {min(above):+.2%}, {max(above):+.2%}"
        table.append(
            f"| {named(rule)} | {len(rows)} | {ends} | "
            f"{of('gradient'):.2f} | {of('time'):.2f} | {there} | {of('audits'):.0f} |"
        )
    return "\n".join(table)


def each_seed(case: str) -> str:
    head = "rule | seed | validation loss | against full | true gradient | time | audits"
    table = [f"| {head} |", "|---|" + "--:|" * 6]
    for rule, seeds in compared(case).items():
        for seed, row in sorted(seeds.items()):
            table.append(
                f"| {named(rule)} | {seed} | {row['loss']:.4f} | {row['above']:+.2%} | "
                f"{row['gradient']:.2f} | {row['forward']:.2f} | {row['audits']:.0f} |"
            )
    return "\n".join(table)


def lines(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def last_losses(rule: str, data: str, folder: str) -> dict[int, float]:
    """The validation loss of each trial at the end of the run of full reverse mode."""
    rows = [r for r in lines(ROOT / folder / "records.jsonl") if r.get("data") == data]
    rows = [r for r in rows if r["kind"] == "evaluation" and r["rule"] == rule]
    last = {"cifar10": 575, "cifar100": 300}[data]
    return {r["trial"]: r["validation_loss"] for r in rows if r["step"] == last}


def task_interaction() -> str:
    """Full reverse mode's loss, and how far above it Krylov and the corrected one end."""
    table = ["| data | trial | full | `Krylov(2, 4)` | corrected |", "|---|--:|--:|--:|--:|"]
    for data in ("cifar10", "cifar100"):
        full, plain = (last_losses(r, data, TASKS[0]) for r in ("Reverse(K=100)", "Krylov(2, 4)"))
        for trial, loss in last_losses("Krylov(2, 4) corrected", data, TASKS[1]).items():
            above = [x / full[trial] - 1 for x in (plain[trial], loss)]
            cells = [f"{x:+.2%}" if x < 10 else "lost" for x in above]
            table.append(f"| {data} | {trial} | {full[trial]:.4f} | {' | '.join(cells)} |")
    return "\n".join(table)


def one_shot() -> str:
    """What the audits of a run found, and the part of its time that they took."""
    found = json.loads((RESULTS / "one-shot.json").read_text())
    table = ["| rule | hyper-iteration | cosine | error | time |", "|---|--:|--:|--:|--:|"]
    for rule, run in found["runs"].items():
        price = found["calls"][rule + WORD] - found["calls"][rule]
        whole = run["rule"] * found["calls"][rule] + run["audits"] * found["calls"][rule + WORD]
        part = f"{run['audits'] * price / whole:.1%}"
        for step, c, e in zip(run["step"], run["audit_cosine"], run["audit_error"], strict=True):
            table.append(f"| {named(rule)} | {step} | {c:.3f} | {e:.2f} | {part} |")
    return "\n".join(table)


def cleaner() -> str:
    """F1 of the labels found, and accuracy on rows not seen: means over seeds."""
    rows = json.loads((RESULTS / "cleaner.json").read_text())["rows"]
    head = "noise | trusted rows | F1 | F1, corrected | accuracy | accuracy, corrected"
    table = [f"| {head} |", "|--:|--:|--:|--:|--:|--:|"]
    for noise, trusted in dict.fromkeys((r["noise"], r["trusted"]) for r in rows):
        here = [r for r in rows if (r["noise"], r["trusted"]) == (noise, trusted)]
        of = lambda key, on: mean(r[key] for r in here if r["corrected"] == on)  # noqa: B023
        cells = [f"{of(key, on):.3f}" for key in ("f1", "accuracy") for on in (False, True)]
        table.append(f"| {noise} | {trusted} | {' | '.join(cells)} |")
    return "\n".join(table)


TABLES = {
    "adam": lambda: over_seeds("adam"),
    "small": lambda: over_seeds("small"),
    "paper": lambda: each_seed("paper"),
    "task interaction": task_interaction,
    "one-shot": one_shot,
    "cleaner": cleaner,
}


def fill(text: str) -> str:
    """The page with its tables drawn anew."""
    for name, make in TABLES.items():
        marks = re.compile(rf"(<!-- {name} -->\n).*?(<!-- end -->)", re.DOTALL)
        text = marks.sub(lambda found, make=make: f"{found[1]}{make()}\n{found[2]}", text)
    return text


if __name__ == "__main__":
    PAGE.write_text(fill(PAGE.read_text()))
