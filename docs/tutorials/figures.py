"""The figures of the tutorials: runs the code of each page, and draws what it left behind."""

import pathlib
import re

import jax
import jax.numpy as jnp
import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot as plt

HERE = pathlib.Path(__file__).parent
BLUE, ORANGE, GREY = "#3b6ea8", "#d9822b", "#9a9a9a"


def run(page):
    space = {}
    for block in re.findall(r"```python\n(.*?)```", (HERE / page).read_text(), re.S):
        exec(compile(block, page, "exec"), space)
    return space


def save(figure, name):
    for ax in figure.axes:
        ax.spines[["top", "right"]].set_visible(False)
    path = HERE.parent / "figures" / f"tutorial-{name}.png"
    figure.savefig(path, dpi=110, bbox_inches="tight")
    print(path.name, path.stat().st_size)


def penalties():
    space = run("penalties.md")
    lam, useful = space["penalty"](space["result"].lam), space["useful"]
    figure, ax = plt.subplots(figsize=(6, 2.6))
    ax.plot(range(useful, 100), lam[useful:100], "o", ms=3, color=GREY, label="no use")
    ax.plot(range(useful), lam[:useful], "o", ms=5, color=ORANGE, label="useful")
    ax.axhline(space["penalty"](space["one"]), color=BLUE, lw=1, label="best single penalty")
    ax.set(xlabel="input (the first 100 of 2000)", ylabel="penalty")
    ax.legend(frameon=False, ncols=3, loc="lower center", bbox_to_anchor=(0.5, 1.0))
    save(figure, "penalties")


def loss_weights():
    space = run("loss_weights.md")
    weights = space["weights"]
    bad = set(space["bad"].tolist())
    figure, ax = plt.subplots(figsize=(6, 2.4))
    ax.bar(range(12), weights, color=[ORANGE if i in bad else BLUE for i in range(12)])
    ax.plot(sorted(bad), [0.012] * len(bad), "x", color=ORANGE, label="wrong sign")
    ax.set(xlabel="source", ylabel="learned weight", xticks=range(12))
    ax.legend(frameon=False)
    save(figure, "loss-weights")


def initialisation():
    space = run("initialisation.md")
    S = space["draw"](jax.random.key(5))
    z = jnp.linspace(-4, 4, 100)[:, None]
    figure, axes = plt.subplots(1, 2, figsize=(7, 2.6), sharey=True)
    cases = [("a random start", space["lam"]), ("the learned start", space["result"].lam)]
    for ax, (name, lam) in zip(axes, cases, strict=True):
        w = space["bx"].solve(space["xi"], lam, S, T=5)
        ax.plot(z, space["net"](lam["start"], z), color=GREY, label="start")
        ax.plot(z, space["net"](w, z), color=BLUE, label="after five steps")
        ax.plot(*S["train"], "o", color=ORANGE, label="seen")
        ax.set_title(name, fontsize=10)
    handles = axes[1].get_legend_handles_labels()
    figure.legend(*handles, frameon=False, ncols=3, loc="lower center", bbox_to_anchor=(0.5, 0.98))
    save(figure, "initialisation")


def schedules():
    space = run("schedules.md")
    best = min(space["constant"], key=space["constant"].get)
    figure, ax = plt.subplots(figsize=(6, 2.4))
    ax.step(
        range(space["T"]), jnp.exp(space["result"].lam), where="mid", color=BLUE, label="learned"
    )
    ax.axhline(jnp.exp(best), color=ORANGE, lw=1, label="best constant rate")
    ax.set(xlabel="step", ylabel="learning rate", ylim=(0, None), xticks=range(0, 20, 5))
    ax.legend(frameon=False)
    save(figure, "schedules")


if __name__ == "__main__":
    for draw in (loss_weights, penalties, initialisation, schedules):
        draw()
