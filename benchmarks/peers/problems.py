"""The problems, as arrays that any library can take. Imports neither jax nor torch."""

from dataclasses import dataclass, replace
from functools import cache

import numpy as np

Arrays = dict[str, np.ndarray]


@dataclass(frozen=True)
class Descent:
    """Gradient descent; without a rate it is a hyperparameter."""

    rate: float | None


@dataclass(frozen=True)
class Adam:
    """As all libraries have it: nothing under the root, and so little beside it that it is
    the same to all whether it is added before or after the correction of the bias.
    """

    rate: float
    eps: float = 1e-20
    betas: tuple[float, float] = (0.9, 0.999)


@dataclass(frozen=True)
class Problem:
    """A bilevel problem; its hypergradient is the mean over `tasks`."""

    name: str
    T: int
    inner: Descent | Adam
    lam: Arrays
    w: Arrays
    """Where the inner loop starts; empty where lam says so."""
    tasks: tuple[Arrays, ...]

    def cast(self, dtype: str) -> "Problem":
        to = lambda a: a.astype(dtype) if a.dtype.kind == "f" else a
        all_of = lambda arrays: {k: to(np.asarray(a)) for k, a in arrays.items()}
        tasks = tuple(all_of(task) for task in self.tasks)
        return replace(self, lam=all_of(self.lam), w=all_of(self.w), tasks=tasks)


@cache
def _digits(n: int, side: int) -> tuple[np.ndarray, np.ndarray]:
    """scikit-learn's digits, enlarged to side x side and moved by up to two pixels."""
    from scipy.ndimage import zoom
    from sklearn.datasets import load_digits

    rng = np.random.default_rng(0)
    images, y = load_digits(return_X_y=True)
    large = zoom(images.reshape(-1, 8, 8) / 16, (1, side / 8, side / 8), order=1)
    which, moves = rng.integers(len(y), size=n), rng.integers(-2, 3, size=(n, 2))
    x = [np.roll(large[i], move, (0, 1)) for i, move in zip(which, moves, strict=True)]
    return np.stack(x).reshape(n, -1), y[which].astype(np.int64)


def _halves(x: np.ndarray, y: np.ndarray, noise: float) -> Arrays:
    """Training and validation data; a part of the training labels is random."""
    rng, n = np.random.default_rng(1), len(y) // 2
    given = np.where(rng.random(n) < noise, rng.integers(10, size=n), y[:n])
    return {"x": x[:n], "y": given, "x_val": x[n:], "y_val": y[n:]}


def cleaning(n: int = 5000, side: int = 28, T: int = 100) -> Problem:
    """Data hypercleaning (section 4.2.1): n weights of examples, W with classes first.

    The rate is well below where descent on these data stops to contract (between 0.3 and 0.5):
    beyond, float32 and float64 part ways, and errors mean nothing.
    """
    x, y = _digits(2 * n, side)
    x = np.concatenate([x, np.ones((2 * n, 1))], 1)
    lam = {"weights": np.random.default_rng(2).normal(size=n)}
    w = {"W": np.zeros((10, x.shape[1]))}
    return Problem("hypercleaning", T, Descent(0.2), lam, w, (_halves(x, y, 0.5),))


def network(n: int = 1000, side: int = 8, hidden: int = 64, T: int = 100) -> Problem:
    """A network of two layers, trained by Adam: weights of examples, a penalty for each layer."""
    rng = np.random.default_rng(3)
    x, y = _digits(2 * n, side)
    x = x - x.mean(0) + 0.1 * rng.normal(size=x.shape)
    lam = {"weights": rng.normal(size=n), "penalty": np.array([-6.0, -6.0])}
    w = {
        "inner": rng.normal(size=(hidden, x.shape[1])) / x.shape[1] ** 0.5,
        "bias": 0.1 * rng.normal(size=hidden),
        "outer": rng.normal(size=(10, hidden)) / hidden**0.5,
    }
    return Problem("MLP, Adam", T, Adam(0.01), lam, w, (_halves(x, y, 0.3),))


def toy(T: int = 100) -> Problem:
    """Section 4.1: two numbers inside, two outside."""
    S = {"G": np.array([[1.0, 0.0], [0.0, 0.5]])}
    lam, w = {"centre": np.ones(2)}, {"w": np.full(2, 2.0)}
    return Problem("toy", T, Descent(0.1), lam, w, (S,))


def omniglot(filters: int = 64, T: int = 50, tasks: int = 4) -> Problem:
    """One-shot learning (section 4.3), on invented characters of Omniglot's size."""
    from bilevax.paper.data import glyphs

    rng = np.random.default_rng(4)
    images = glyphs.load(characters=10) / 255

    def layer(name: str, channels: int) -> Arrays:
        kernel = (2 / (9 * channels)) ** 0.5 * rng.normal(size=(9 * channels, filters))
        rest = {f"{name}/scale": np.ones(filters), f"{name}/shift": np.zeros(filters)}
        return {f"{name}/kernel": kernel} | rest

    lam = layer("base/conv1", 1) | layer("base/conv2", filters)
    lam |= layer("c/conv3", filters) | layer("c/conv4", filters)
    lam["c/linear/kernel"] = rng.normal(size=(filters, 5)) / filters**0.5
    lam["c/linear/shift"] = np.zeros(5)
    lam |= {f"rho/{name}": np.log(np.array(0.0025)) for name in ("conv3", "conv4", "linear")}
    lam["gamma"] = np.log(np.array(0.4))

    def task() -> Arrays:
        of = images[rng.choice(len(images), 5, replace=False)][:, rng.permutation(20)[:16]]
        flat = lambda part: part.reshape(-1, *part.shape[2:])
        label = lambda n: np.repeat(np.arange(5), n)
        return {"x": flat(of[:, :1]), "y": label(1), "x_val": flat(of[:, 1:]), "y_val": label(15)}

    return Problem("Omniglot", T, Descent(None), lam, {}, tuple(task() for _ in range(tasks)))


def full(name: str, T: int | None = None) -> Problem:
    """The size that is timed."""
    make = {"hypercleaning": cleaning, "MLP, Adam": network, "Omniglot": omniglot, "toy": toy}
    return make[name](**({"T": T} if T else {}))


def quick(name: str, T: int | None = None) -> Problem:
    """Small enough to see in a minute or two that everything works."""
    small = {
        "hypercleaning": lambda T=100: cleaning(500, 16, T),
        "MLP, Adam": lambda T=30: network(100, 8, 16, T),
        "Omniglot": lambda T=6: omniglot(4, T, 2),
        "toy": lambda T=30: toy(T),
    }
    return small[name](**({"T": T} if T else {}))


def tiny(name: str) -> Problem:
    """For comparing hypergradients."""
    make = {
        "hypercleaning": lambda: cleaning(40, 4, 12),
        "MLP, Adam": lambda: network(30, 4, 5, 12),
        "Omniglot": lambda: omniglot(3, 6, 2),
        "toy": lambda: toy(12),
    }
    return make[name]()


NAMES = ("hypercleaning", "MLP, Adam", "Omniglot", "toy")
