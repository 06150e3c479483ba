"""The pictures of the tutorial, from a record: python -m examples.gpt.figures [RECORD] [FOLDER]."""

import sys
from pathlib import Path

import matplotlib
import numpy as np

from bilevax.paper.records import load

from .scores import area, curve
from .tables import RECORD, best, suspicion
from .text import CODE, PROSE, SHUFFLED, TABLE, kinds

matplotlib.use("agg")
import matplotlib.pyplot as plt

BLUE, ORANGE, GREY, GREEN = "#3b6ea8", "#d9822b", "#9a9a9a", "#4c9a6a"
ROOT = Path(__file__).parents[2]


def documents(run):
    """Left what the metagradient says of each document, right the ROC curves."""
    ways, kind = suspicion(run), kinds(run.config["documents"])
    bad, colours = kind != CODE, {CODE: GREY, SHUFFLED: ORANGE, TABLE: GREEN, PROSE: BLUE}
    figure, (left, right) = plt.subplots(1, 2, figsize=(8, 4), width_ratios=(3, 2))
    order = np.argsort(ways["metagradient"])
    for name, colour in colours.items():
        at = np.flatnonzero(kind[order] == name)
        left.plot(at, 1e3 * ways["metagradient"][order][at], "o", ms=3, color=colour, label=name)
    left.axhline(0, color="black", lw=0.5)
    left.set(xlabel="document, by rank", ylabel="metagradient · 1000")
    left.legend(frameon=False)
    for (name, score), colour in zip(ways.items(), (BLUE, GREEN, ORANGE, GREY), strict=True):
        right.plot(*curve(score, bad), color=colour, label=f"{name}, {area(score, bad):.2f}")
    right.plot([0, 1], [0, 1], ":", color="black", lw=0.5)
    right.set(xlabel="good documents suspected", ylabel="bad documents found")
    right.legend(frameon=False, fontsize=8, loc="lower left", bbox_to_anchor=(0, 1))
    return figure


def descent(run):
    """Left the validation loss along the metagradient steps, right the schedules."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(8, 2.8))
    steps = [row["valid"] for row in run.of("metagradient")]
    (end,) = run.of("learned", at="weights and rates")
    left.plot([*steps, end["valid"]], "o-", ms=4, color=BLUE, label="weights and rates")
    left.axhline(best(run, "constant")["valid"], color=ORANGE, lw=1, label="best constant rate")
    left.axhline(best(run, "cosine")["valid"], color=GREY, lw=1, label="best cosine")
    left.set(xlabel="metagradient steps", ylabel="validation loss")
    left.legend(frameon=False)
    every, warm = run.config["every"], run.config["warm"]
    t = np.arange(run.config["T"])
    rate = lambda values: np.exp(np.array(values))[t // every] * np.minimum(1, (t + 1) / warm)
    (learned,) = run.of("lam")
    right.plot(t, rate(learned["rate"]), color=BLUE, label="learned")
    right.plot(
        t,
        rate([np.log(best(run, "constant")["at"])] * len(learned["rate"])),
        color=ORANGE,
        lw=1,
        label="best constant rate",
    )
    right.set(xlabel="step", ylabel="learning rate", ylim=(0, None))
    right.legend(frameon=False)
    return figure


def main(record=RECORD, folder=ROOT / "docs" / "figures"):
    run = load(record)
    for draw in (documents, descent):
        figure = draw(run)
        for ax in figure.axes:
            ax.spines[["top", "right"]].set_visible(False)
        figure.tight_layout()
        path = Path(folder) / f"tutorial-gpt-{draw.__name__}.png"
        figure.savefig(path, dpi=110, bbox_inches="tight")
        print(path.name, path.stat().st_size)


if __name__ == "__main__":
    main(*sys.argv[1:])
