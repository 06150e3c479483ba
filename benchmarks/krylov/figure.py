"""The figure of the Krylov benchmarks, from results/krylov/records.jsonl.

python benchmarks/krylov/figure.py
"""

import json
import re
from pathlib import Path

import data
import matplotlib.pyplot as plt
import numpy as np

FIGURE = Path(__file__).parents[2] / "docs" / "figures" / "krylov.png"
PANELS = {  # title -> problem, pattern of the points
    "MNIST, hyper-iteration 0": ("mnist", "it. 0"),
    "MNIST, hyper-iteration 30": ("mnist", "it. 30"),
    "MNIST, hyper-iteration 100": ("mnist", "it. 100"),
    "Omniglot, regularised": ("omniglot", "regular trained .*"),
    "Omniglot, weakly regularised": ("omniglot", "weak trained .*"),
    "MLP, momentum": ("mlp momentum", ".*"),
    "MLP, Adam": ("mlp adam", ".*"),
}
CURVES = {  # name of the rule -> label, colour (Okabe-Ito), marker
    "Reverse": ("truncated, Reverse(K)", "#0072B2", "o"),
    "Neumann": ("Neumann(K)", "#56B4E9", "v"),
    "CG": ("Implicit, CG", "#999999", "s"),
}
POINTS = {  # pattern of the rule -> label, style; what we recommend is large
    "Krylov (?!1x10$).*": (
        "Krylov, other settings",
        {"color": "#D55E00", "marker": "D", "ms": 3.5, "alpha": 0.35, "mew": 0},
    ),
    "Krylov 1x10": ("Krylov(), the default", {"color": "#D55E00", "marker": "D", "ms": 9}),
    "AdaptiveKrylov 0.1": (
        "AdaptiveKrylov(0.1)",
        {"color": "#009E73", "marker": "*", "ms": 14, "mec": "white", "mew": 0.6},
    ),
}
LEAST, MOST = 0.003, 3.0


def medians(records, problem, pattern):
    """Rule -> (products, error), each the median over the points of a panel."""
    rows = {}
    for r in records:
        if r["problem"] == problem and re.fullmatch(pattern, r["point"]) and "error" in r:
            rows.setdefault(r["rule"], []).append((r["products"], r["error"]))
    return {rule: np.median(v, axis=0) for rule, v in rows.items()}


def draw(ax, title, table):
    for family, (label, colour, marker) in CURVES.items():
        chosen = [v for k, v in table.items() if k.split()[0] == family]
        if not chosen:
            continue
        x, y = np.array(sorted(map(tuple, chosen))).T
        y = np.clip(y, LEAST, MOST)
        ax.plot(x, y, "-", marker=marker, color=colour, label=label, ms=4, lw=1.5)
    for pattern, (label, style) in POINTS.items():
        x, y = np.array([v for k, v in table.items() if re.fullmatch(pattern, k)]).T
        ax.plot(x, np.clip(y, LEAST, MOST), ls="none", label=label, zorder=5, **style)
    ax.set(xscale="log", yscale="log", title=title, ylim=(LEAST, MOST * 1.15), xlim=(0.9, 130))
    ax.set_xticks([1, 2, 5, 10, 20, 50, 100], ["1", "2", "5", "10", "20", "50", "100"])
    ax.set_yticks([0.01, 0.1, 1], ["1 %", "10 %", "100 %"])
    ax.minorticks_off()
    ax.axhline(0.1, color="black", lw=0.6, ls=":")
    ax.grid(alpha=0.25)


def main():
    records = [json.loads(x) for x in (data.RESULTS / "records.jsonl").read_text().splitlines()]
    plt.rcParams.update({"font.size": 9, "axes.titlesize": 10, "axes.spines.top": False})
    plt.rcParams["axes.spines.right"] = False
    fig, axes = plt.subplots(2, 4, figsize=(10.4, 5.6), layout="constrained")
    fig.get_layout_engine().set(hspace=0.08)
    for ax, (title, where) in zip(axes.flat, PANELS.items(), strict=False):
        draw(ax, title, medians(records, *where))
    legend = axes.flat[-1]
    legend.axis("off")
    handles, labels = axes.flat[0].get_legend_handles_labels()
    legend.legend(handles, labels, loc="center", frameon=False, fontsize=9.5)
    note = "medians over points\ncut off at 300 % and 0.3 %"
    legend.text(0.5, 0.02, note, ha="center", fontsize=8, color="0.4", transform=legend.transAxes)
    for ax in axes[:, 0]:
        ax.set_ylabel("relative error of h")
    for ax in axes[1, :3]:
        ax.set_xlabel("products")
    FIGURE.parent.mkdir(parents=True, exist_ok=True)
    fig.savefig(FIGURE, dpi=150)


if __name__ == "__main__":
    main()
