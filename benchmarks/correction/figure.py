"""The figure of docs/correction.md: the paper's hypercleaning with and without a correction.

    python benchmarks/correction/figure.py

Loss and true gradient of seed 0 against CPU seconds, from results/hypercleaning and
results/correction/times.json.
"""

import matplotlib.pyplot as plt
from page import FULL, PLAIN, ROOT, WORD, cleaning, named, read, seconds

from bilevax._pages.palette import BLUE, GRID, INK, MUTED, ORANGE, TEAL

OUT, SEED = ROOT / "docs" / "figures" / "correction.png", 0
PANELS = {
    "loss": "validation loss, above the least of all",
    "gradient": "norm of the true gradient",
}
COLOURS = dict(zip(PLAIN, (BLUE, ORANGE, TEAL), strict=True))


def main() -> None:
    runs, calls = cleaning(), read("paper")[1]
    rules = [FULL, *(rule + word for rule in PLAIN for word in ("", WORD))]
    runs = {rule: runs[rule, SEED] for rule in rules}
    least = min(min(run["curve"]["loss"]) for run in runs.values())
    figure, axes = plt.subplots(1, 2, figsize=(10.4, 4.2), layout="constrained")
    for axis, (name, title) in zip(axes, PANELS.items(), strict=True):
        for rule, run in runs.items():
            x = seconds(run, calls)
            y = [v - least if name == "loss" else v for v in run["curve"][name]]
            colour = COLOURS.get(rule.removesuffix(WORD), INK).light
            style = "-" if rule.endswith(WORD) or rule == FULL else ":"
            axis.plot(x, y, style, color=colour, lw=1.8, label=named(rule).replace("`", ""))
        axis.set(xscale="log", yscale="log", xlabel="CPU seconds of one thread")
        axis.set_title(title, fontsize=11, loc="left", color=INK.light)
        axis.grid(color=GRID.light, lw=0.7)
        axis.tick_params(which="both", colors=MUTED.light, length=0)
        for spine in axis.spines.values():
            spine.set_color(GRID.light)
    axes[0].set_ylim(3e-5, None)
    axes[1].legend(frameon=False, fontsize=8.5, labelcolor=INK.light)
    figure.savefig(OUT, dpi=110)


if __name__ == "__main__":
    main()
