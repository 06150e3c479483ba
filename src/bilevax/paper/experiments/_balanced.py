"""Parts of a data set that hold each class equally often."""

import numpy as np


def balanced(
    y: np.ndarray, sizes: tuple[int, ...], rng: np.random.Generator
) -> tuple[np.ndarray, ...]:
    """Rows of parts that hold each class equally often (but for a remainder), and of the rest."""
    classes = int(y.max()) + 1
    rows = [rng.permutation(np.flatnonzero(y == c)) for c in range(classes)]
    parts, used = [], [0] * classes
    for size in sizes:
        take = [size // classes + (c < size % classes) for c in range(classes)]
        if any(used[c] + take[c] > len(rows[c]) for c in range(classes)):
            raise ValueError(f"{size} class-balanced examples are more than there are; take fewer.")
        part = np.concatenate([rows[c][used[c] : used[c] + take[c]] for c in range(classes)])
        parts.append(rng.permutation(part))
        used = [u + t for u, t in zip(used, take, strict=True)]
    return *parts, np.concatenate([rows[c][used[c] :] for c in range(classes)])
