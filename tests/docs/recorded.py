"""What sentences of the pages say, computed from the records."""

from functools import cache
from math import isfinite
from statistics import mean, median

from benchmarks.answer import table as answer
from benchmarks.peers import page as peers
from quoted import RESULTS, lines, measured, read

from bilevax.paper.report import Report


def ends(values):
    return [min(values), max(values)]


def draws(rule, swings):
    """Errors at lambda = 0, of the draws of the data where descent oscillates or does not."""
    rows = [row for row in lines("krylov/draws.jsonl") if row["rule"] == rule]
    return [row["error"] for row in rows if (row["turn"] < -0.5) == swings]


def calm():
    return [x for rule in ("Krylov 1x10", "Krylov 1x10 K10") for x in ends(draws(rule, False))]


def swinging():
    return draws("Krylov 1x10", True) + draws("Krylov 1x10 K10", True)


def momentum():
    errors = {"Krylov(rank=10)": [], "Krylov(pieces=1, rank=20)": []}
    for row in lines("krylov/momentum.jsonl"):
        errors[row["rule"]].append(row["error"])
    ours, other = errors.values()
    return [median(ours), *ends(ours), median(other)]


def weak(*rules):
    return [measured("omniglot", "weak trained .*", rule, "error")[0] for rule in rules]


def bench(problem, want, key):
    case = ("bilevax", problem, want)
    rows = peers.measured(RESULTS / "benchmarks")
    (found,) = [r[key] for r in rows if (r["library"], r["problem"], r["want"]) == case]
    return found


def budget():
    ratio = lambda problem: bench(problem, "full, 1 GB", "ms") / bench(problem, "full", "ms")
    size = [bench("hypercleaning", w, "program_bytes") / 1e6 for w in ("full, 1 GB", "full")]
    return [ratio("hypercleaning"), *size, ratio("MLP, Adam")]


def run_time(rule, key):
    return read("krylov/run_time.json")[rule][key]


@cache
def limits():
    """Distance from the optimum of f~ at the end, for each K."""
    rows = lines("toy/records.jsonl")
    last = {r["K"]: r for r in rows if r["kind"] == "iterate" and r["objective"] == "f~"}
    return [last[K]["distance"] for K in (1, 5, 10, 25)]


@cache
def ratio(objective):
    rows = lines("toy/records.jsonl")
    own = [r for r in rows if r["kind"] == "descent" and r["objective"] == objective]
    return min(r["ratio"] for r in own if r["K"] == 1)


@cache
def interaction(data):
    """Validation loss: at the end of each K, and before."""
    rows = [
        r for r in lines("task-interaction/records.jsonl")
        if (r["kind"], r["data"]) == ("evaluation", data)
    ]  # fmt: skip
    found = []
    for rule in ("Reverse(K=1)", "Reverse(K=5)", "Reverse(K=25)", "Reverse(K=100)"):
        last = {r["trial"]: r["validation_loss"] for r in rows if r["rule"] == rule}
        found.append(mean(last.values()))
    return [*found, mean(r["validation_loss"] for r in rows if r["step"] == 0)]


@cache
def cleaned(rule, run="hypercleaning/seed-0"):
    rows = lines(f"{run}/records.jsonl")
    return [r for r in rows if r["kind"] == "evaluation" and r["rule"] == rule]


def cost(rule):
    rows = lines("hypercleaning/seed-0/records.jsonl")
    (row,) = [r for r in rows if (r["kind"], r["rule"]) == ("cost", rule)]
    return row["seconds"] / row["forward_seconds"]


def honest():
    rows = lines("krylov/coverage_fresh.jsonl")
    assert len(rows) == 400
    return [100 * mean(r["true"] < r["estimate"] for r in rows)]


def bias():
    return [cleaned(f"Reverse(K={K})")[-1]["gradient_norm"] for K in (5, 100)]


def divided():
    last = cleaned("Reverse(K=5)", "hypercleaning/penalty-divided")[-1]
    return [last["validation_loss"], last["step"], 100 * last["validation_accuracy"]]


def first_rule():
    """F1 at lambda < -4 of K = 1, early and at the end: means over seeds."""
    runs = sorted((RESULTS / "hypercleaning").glob("seed-*"))
    seeds = [cleaned("Reverse(K=1)", f"hypercleaning/{run.name}") for run in runs]
    at = lambda step: mean(r["f1_4"] for rows in seeds for r in rows if r["step"] == step)
    return [at(150), at(1000)]


def speed():
    found = read("hypercleaning/speed.json")
    step = found["milliseconds"]["forward"] / 100
    ratios = [found["x forward"][rule] for rule in ("Reverse(K=5)", "Krylov(2, 4)")]
    arithmetic = step / found["forward / arithmetic at peak"]
    return [*ratios, step, found["forward / two reads"], arithmetic, found["peak GFLOP/s"]]


@cache
def one_shot(rule):
    rows = lines("one-shot/records.jsonl")
    return [r for r in rows if r["kind"] == "evaluation" and r["rule"] == rule]


def above_the_paper():
    theirs = {"Reverse(K=1)": 95.6, "Reverse(K=10)": 96.3, "Reverse(K=25)": 96.1, "Reverse()": 95.8}
    last = {rule: round(100 * one_shot(rule)[-1]["test_accuracy"], 1) for rule in theirs}
    return ends([last[rule] - theirs[rule] for rule in theirs])


def reaches(rule, level):
    return next(r["step"] for r in one_shot(rule) if r["test_accuracy"] > level)


def learning():
    cut = [reaches(f"Reverse(K={K})", 0.96) for K in (1, 10, 25)]
    return [reaches("Krylov(2, 4)", 0.96), *ends(cut)]


def forecasts():
    problems = read("forecast.json").values()
    apart = [abs(r["counted"] / r["measured"] - 1) for p in problems for r in p.values()]
    return [sum(x < 0.3 for x in apart), len(apart), 100 * 0.3, 100 * median(apart)]


def scaling():
    rows = [r for r in lines("outer/scaling.jsonl") if r["batch"] == 16 and r["at_once"] is None]
    one, *more = sorted(rows, key=lambda r: r["devices"])
    return [r["bytes"] / 1e6 for r in (one, *more)] + [r["seconds"] / one["seconds"] for r in more]


def diagnosis():
    found = read("diagnosis.json")
    return [found["cheap_ratio"], found["every_ratio"]]


def he(rule, key):
    rows = [r for r in lines("krylov/records.jsonl") if r["problem"] == "omniglot"]
    return sorted(r[key] for r in rows if r["point"][:2] == "he" and r["rule"] == rule)


def beyond():
    """He initialisation."""
    known = [x for key in ("error", "estimate") for x in he("AdaptiveKrylov 0.1", key)]
    return known + he("Krylov 1x8 head4", "error")


def depth(*at):
    """The error of truncation after one-shot learning: objective and K."""
    rows = [r for r in lines("one-shot/records.jsonl") if r["kind"] == "depth"]
    own = [r for r in rows if r["rule"] == "Reverse(K=10)"]
    error = {(r["objective"], r["K"]): r["error"] for r in own}
    kinds = dict.fromkeys(r["objective"] for r in own)
    return [error[[*kinds][i], K] for i, K in at]


def gained():
    """Points of test accuracy that the learned C brings on CIFAR-100."""
    shown = Report([RESULTS / "task-interaction"]).tables
    (found,) = [t for t in shown if t.name == "task-interaction-table3-cifar100"]
    at = {column.name: i for i, column in enumerate(found.columns)}
    point = lambda row, name: float(row[at[name]].split()[0])
    rows = [row for row in found.rows if row[0].isdigit()]
    gains = [point(r, "test acc. %") - point(r, "before, test acc. %") for r in rows]
    return ends([round(x, 2) for x in gains])


def by_hand():
    """The greatest time of a method of minimize over that of the same method by hand."""
    ratios = []
    for rows in answer.lines(RESULTS / "benchmarks").values():
        seconds = {row.name: row.seconds for row in rows}
        ours = [name for name in seconds if f"bilevax: {name}" in seconds]
        ratios += [seconds[f"bilevax: {name}"] / seconds[name] for name in ours]
    return [max(x for x in ratios if isfinite(x))]
