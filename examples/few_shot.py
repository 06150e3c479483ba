"""A new alphabet from one drawing of each letter, and a picture of it.

    python examples/few_shot.py --out few_shot.png

With Omniglot (bilevax data fetch omniglot, or BILEVAX_DATA) characters of training and of the
picture are from different alphabets; without it they are invented.
"""

import argparse

import numpy as np
from matplotlib.figure import Figure

import bilevax as bx
from bilevax.apps import FewShotLearner, TaskSampler
from bilevax.paper.data import DataError, glyphs, omniglot

WAYS, SHOWN = 5, 8


def characters():
    """(characters to learn from, five new ones), from different alphabets where there are any."""
    try:
        data = omniglot.load()
    except (DataError, OSError) as error:
        print(f"Invented characters instead of Omniglot: {error}")
    else:
        first = omniglot.BACKGROUND  # of the alphabets that are there for testing
        new = slice(first, first + WAYS)
        return data.images[:first], data.images[new], data.alphabets[first]
    images = glyphs.load(characters=200 + WAYS)
    return images[:200], images[200:], "invented characters"


def draw(support, query, names, found, sure):
    """Left the drawing that was learned from, right others, with what was said of them."""
    figure = Figure((1.1 * (SHOWN + 1), 1.25 * WAYS), 150, layout="constrained")
    axes = figure.subplots(WAYS, SHOWN + 1)
    for i, row in enumerate(axes):
        row[0].imshow(255 - support[i], cmap="gray", vmin=0, vmax=255)
        row[0].set_title(f"this is {names[i]}", fontsize=9, color="#0a63b0")
        for j, cell in enumerate(row[1:]):
            cell.imshow(255 - query[i, j], cmap="gray", vmin=0, vmax=255)
            right = found[i, j] == names[i]
            text = f"{found[i, j]}  {100 * sure[i, j]:.0f} %"
            cell.set_title(text, fontsize=9, color="#1f2328" if right else "#d1242f")
        for cell in row:
            cell.set_xticks([])
            cell.set_yticks([])
    return figure


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--filters", type=int, default=16)
    parser.add_argument("--steps", type=int, default=150)
    parser.add_argument("--T", type=int, default=20)
    parser.add_argument("--out", default="few_shot.png")
    given = parser.parse_args()
    known, new, where = characters()
    learner = FewShotLearner(
        filters=given.filters, T=given.T, steps=given.steps, rule=bx.Reverse(K=min(5, given.T)),
        progress=None,
    )  # fmt: skip
    learner.fit(TaskSampler(known, ways=WAYS))
    names = list("ABCDE")
    letters = learner.adapt(new[:, 0], names)
    p = letters.predict_proba(new[:, 1:].reshape(-1, *new.shape[2:])).reshape(WAYS, -1, WAYS)
    found = letters.classes_[p.argmax(2)]
    right = np.mean(found == np.array(names)[:, None])
    print(f"{where}: {100 * right:.1f} % of {found.size} drawings are recognised.")
    draw(new[:, 0], new[:, 1:], names, found, p.max(2)).savefig(given.out)


if __name__ == "__main__":
    main()
