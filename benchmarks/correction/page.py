"""Tables of docs/correction.md, from results/correction and results/hypercleaning.

python benchmarks/correction/page.py
"""

import json
import re
from pathlib import Path
from statistics import mean

ROOT = Path(__file__).parents[2]
RESULTS, PAGE = ROOT / "results" / "correction", ROOT / "docs" / "correction.md"
TASKS = ("results/task-interaction", "results/correction/task-interaction")
FULL, WORD = "Reverse()", " corrected"
SEEDS, SEEDS_OF_PAPER = 5, (0, 1, 2)
PLAIN = ("Reverse(K=1)", "Reverse(K=5)", "Krylov(pieces=2, rank=4)")
NEAR = 1.01
"""Full reverse mode's final loss plus 1 %."""


def read(case: str) -> tuple[list[dict], dict]:
    """Runs, and the seconds of a call of each rule and of each audit."""
    path = RESULTS / f"{case}.jsonl"
    rows = lines(path) if path.exists() else []
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


def compared(case: str) -> dict[str, list[dict]]:
    """By rule: its runs against full reverse mode's from the same start, with the same seed."""
    rows, calls = read(case)
    full = {(r["seed"], r["start"]): r for r in rows if r["rule"] == FULL}
    means = {seed: mean(ends(r)["loss"] for at, r in full.items() if at[0] == seed)
             for seed, _ in full}  # fmt: skip
    out: dict[str, list[dict]] = {}
    for row in rows:
        if pair := full.get((row["seed"], row["start"])):
            numbers = against(row, pair, calls)
            numbers["above"] = numbers["loss"] / means[row["seed"]] - 1
            out.setdefault(row["rule"], []).append({"seed": row["seed"]} | numbers)
    return out


def ends(row: dict) -> dict:
    return {name: values[-1] for name, values in row["curve"].items()}


def against(row: dict, full: dict, calls: dict) -> dict:
    """The end of a run, and what it took, in parts of what full reverse mode took."""
    end, other = ends(row), ends(full)
    taken, whole = seconds(row, calls)[-1], seconds(full, calls)[-1]
    return {
        "loss": end["loss"],
        "above": end["loss"] / other["loss"] - 1,
        "gradient": end["gradient"] / other["gradient"],
        "time": taken / whole,
        "forward": taken / (end["step"] * calls["forward"]),
        "there": until(row, calls, NEAR * other["loss"]) / whole,
        "audits": end["audits"],
    }


def named(rule: str) -> str:
    plain = rule.removesuffix(WORD).replace("pieces=", "").replace("rank=", "")
    return f"`{plain}`" + (", corrected" if rule.endswith(WORD) else "")


def over_runs(case: str) -> str:
    """Means over runs, against full reverse mode; of the losses also the least and the largest."""
    head = "rule | runs | loss | least, largest | gradient | time | time to full + 1 % | audits"
    table = [f"| {head} |", "|---|" + "--:|" * 7]
    for rule, rows in compared(case).items():
        of = lambda key: [row[key] for row in rows]  # noqa: B023
        above = of("above")
        table.append(
            f"| {named(rule)} | {len(rows)} | {mean(above):+.2%} | "
            f"{min(above):+.2%}, {max(above):+.2%} | {mean(of('gradient')):.2f} | "
            f"{mean(of('time')):.2f} | {arrived(of('there'))} | {mean(of('audits')):.0f} |"
        )
    return "\n".join(table)


def arrived(times: list[float]) -> str:
    """The mean of the runs that came so far, and how many did."""
    there = [x for x in times if x < float("inf")]
    if not there:
        return "not reached"
    return f"{mean(there):.2f}" + (f" ({len(there)})" if len(there) < len(times) else "")


def each_seed(case: str) -> str:
    """Mean, least and largest loss over the starts of each seed."""
    found = {rule: rows for rule, rows in compared(case).items() if len(rows) > SEEDS}
    table = ["| seed | " + " | ".join(map(named, found)) + " |", "|--:|" + "--:|" * len(found)]
    for seed in range(SEEDS):
        cells = []
        for rows in found.values():
            losses = [row["loss"] for row in rows if row["seed"] == seed]
            cells.append(f"{mean(losses):.4f} ({min(losses):.4f}, {max(losses):.4f})")
        table.append(f"| {seed} | {' | '.join(cells)} |")
    return "\n".join(table)


def cleaning() -> dict[tuple[str, int], dict]:
    """The runs of the paper's hypercleaning by rule and seed, in the form of `run.py`."""
    runs: dict[tuple[str, int], dict] = {}
    for path in sorted((ROOT / "results" / "hypercleaning").glob("**/seed-*/records.jsonl")):
        for row in lines(path):
            if row["kind"] not in ("evaluation", "audits") or row.get("step") == 0:
                continue
            rule = row["rule"].replace("(K=100)", "()").replace("(2, 4)", "(pieces=2, rank=4)")
            run = runs.setdefault((rule, row["seed"]), {"rule": rule, "seed": row["seed"]})
            run.setdefault(row["kind"], []).append(row)
    return {at: run | {"curve": curve(run), "values": []} for at, run in runs.items()}


def curve(run: dict) -> dict[str, list[float]]:
    """Along a run. An audit calls the rule itself; what was taken again is counted once."""
    rows = run["evaluation"]
    (audits,) = run.get("audits") or [{"at": []}]
    audits = [sum(at < row["step"] for at in audits["at"]) for row in rows]
    return {
        "step": [row["step"] for row in rows],
        "loss": [row["validation_loss"] for row in rows],
        "gradient": [row["gradient_norm"] for row in rows],
        "rule": [row["step"] - n for row, n in zip(rows, audits, strict=True)],
        "audits": audits,
    }


def paper() -> str:
    """Rules of the paper's hypercleaning against full reverse mode, seed by seed."""
    calls, runs = read("paper")[1], cleaning()
    head = "rule | seed | validation loss | against full | true gradient | forward passes | audits"
    table = [f"| {head} |", "|---|" + "--:|" * 6]
    for rule in [FULL, *(r for plain in PLAIN for r in (plain, plain + WORD))]:
        for seed in SEEDS_OF_PAPER:
            if (rule, seed) in runs and (FULL, seed) in runs:
                row = against(runs[rule, seed], runs[FULL, seed], calls)
                table.append(
                    f"| {named(rule)} | {seed} | {row['loss']:.4f} | {row['above']:+.2%} | "
                    f"{row['gradient']:.1f} | {row['forward']:.2f} | {row['audits']:.0f} |"
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
    "adam": lambda: over_runs("adam"),
    "starts": lambda: each_seed("adam"),
    "small": lambda: over_runs("small"),
    "paper": paper,
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
