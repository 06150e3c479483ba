"""The tables of the tutorial, from a record: python -m examples.gpt.tables [RECORD]."""

import sys
from pathlib import Path

import numpy as np

from bilevax.paper.records import load

from .scores import area
from .text import CODE, PROSE, SHUFFLED, TABLE, kinds

RECORD = Path(__file__).parents[2] / "results" / "gpt"


def suspicion(run):
    """What each way says of all documents: more for a worse one."""
    (first,), (rest,) = run.of("metagradient", at=0), run.of("scores")
    (noisy,) = run.of("metagradient, constant rate")
    ways = {"metagradient": first["h"]["weight"], "gradient similarity": rest["cosine"]}
    ways |= {"training loss": rest["loss"], "metagradient, constant rate": noisy["h"]["weight"]}
    return {name: np.array(score) for name, score in ways.items()}


def areas(run):
    """Under ROC curves: of all bad documents, and of each kind of them."""
    kind = kinds(run.config["documents"])
    lines = ["| | all | shuffled | tables | prose |", "|---|--:|--:|--:|--:|"]
    for way, score in suspicion(run).items():
        cells = [area(score, kind != CODE)]
        for one in (SHUFFLED, TABLE, PROSE):
            known = np.isin(kind, [CODE, one])
            cells.append(area(score[known], kind[known] == one))
        lines.append(f"| {way} | " + " | ".join(f"{x:.2f}" for x in cells) + " |")
    return "\n".join(lines)


def best(run, kind):
    return min(run.of(kind), key=lambda row: row["valid"])


def losses(run):
    """Of validation and of test, by how lam was found."""
    rate, top = best(run, "constant")["at"], best(run, "cosine")["at"]
    rows = {f"constant rate {rate:g}, the best": run.of("constant", at=rate)}
    rows |= {f"cosine from {rate:g}, the start": run.of("cosine", at=rate)}
    rows |= {f"cosine from {top:g}, the best": run.of("cosine", at=top)}
    learned = ("weights", "rates", "weights and rates")
    rows |= {f"learned {what}": run.of("learned", at=what) for what in learned}
    lines = ["| | validation loss | test loss |", "|---|--:|--:|"]
    lines += [f"| {name} | {r['valid']:.3f} | {r['test']:.3f} |" for name, (r,) in rows.items()]
    return "\n".join(lines)


def costs(run):
    """The fastest of its kind: clock and cores; the largest memory of the process by then."""
    lines = ["| 1,000 steps | seconds | CPU seconds | peak memory |", "|---|--:|--:|--:|"]
    ways = {
        "forward": run.of("constant") + run.of("cosine"),
        "metagradient": run.of("metagradient"),
    }
    for name, rows in ways.items():
        row, memory = min(rows, key=lambda r: r["seconds"]), max(r["peak_bytes"] for r in rows)
        spent = f"{row['seconds']:.0f} | {row['cpu']:.0f}"
        lines.append(f"| {name} | {spent} | {memory / 1e6:.0f} MB |")
    whole = [r for r in run.rows if "cpu" in r]
    seconds, cpu = (sum(r[what] for r in whole) for what in ("seconds", "cpu"))
    memory = max(r["peak_bytes"] for r in whole)
    lines.append(f"| all of it | {seconds:.0f} | {cpu:.0f} | {memory / 1e6:.0f} MB |")
    return "\n".join(lines)


def smooth(run):
    """Steps against the signs of the first metagradient: by what the validation loss changes."""
    (first,) = run.of("metagradient", at=0)
    slope = sum(np.abs(h).sum() for h in first["h"].values())
    lines = ["| step | says the metagradient | says training |", "|---|--:|--:|"]
    for row in run.of("probe"):
        found = row["valid"] - first["valid"]
        lines.append(f"| {row['at']:g} | {-row['at'] * slope:.4f} | {found:.4f} |")
    return "\n".join(lines)


if __name__ == "__main__":
    run = load(sys.argv[1] if len(sys.argv) > 1 else RECORD)
    print(areas(run), losses(run), costs(run), smooth(run), sep="\n\n")
