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
    ways = {"metagradient": first["h"]["weight"], "training loss": rest["loss"]}
    ways |= {"gradient similarity": rest["cosine"]}
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
    rows = {
        f"{kind}, rate {best(run, kind)['at']:g}": best(run, kind)
        for kind in ("constant", "cosine")
    }
    names = {"weights": "learned weights", "rates": "learned rates"}
    names["weights and rates"] = "learned weights and rates"
    rows |= {name: run.of("learned", at=at)[0] for at, name in names.items()}
    lines = ["| | validation loss | test loss |", "|---|--:|--:|"]
    lines += [f"| {name} | {row['valid']:.3f} | {row['test']:.3f} |" for name, row in rows.items()]
    return "\n".join(lines)


def costs(rows):
    """Of the benchmark: clock, cores and memory."""
    lines = ["| | seconds | CPU seconds | peak memory |", "|---|--:|--:|--:|"]
    for row in rows:
        seconds = f"{row['seconds']:.0f} | {row['cpu_seconds']:.0f}"
        lines.append(f"| {row['way']} | {seconds} | {row['peak_bytes'] / 1e6:.0f} MB |")
    return "\n".join(lines)


if __name__ == "__main__":
    run = load(sys.argv[1] if len(sys.argv) > 1 else RECORD)
    print(areas(run), losses(run), sep="\n\n")
