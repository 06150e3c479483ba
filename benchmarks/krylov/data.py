"""The data of the Krylov benchmarks: MNIST, Omniglot and scikit-learn's digits.

Files are looked for in --data DIR or, without it, in the folder that the environment
variable BILEVAX_DATA names: mnist/train-*.gz and omniglot/images_background.zip.
"""

import argparse
import functools
import gzip
import io
import os
import zipfile
from pathlib import Path

import jax.numpy as jnp
import numpy as np

RESULTS = Path(__file__).parents[2] / "results" / "krylov"


def arguments(text: str) -> argparse.ArgumentParser:
    """A parser with --data, for the scripts of this folder."""
    parser = argparse.ArgumentParser(description=text)
    parser.add_argument("--data", default=os.environ.get("BILEVAX_DATA", "data"))
    return parser


def cache(name: str) -> Path:
    """A file that the scripts make for themselves, kept out of version control."""
    folder = RESULTS / "cache"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / ".gitignore").write_text("*\n")
    return folder / name


def find(folder: str, name: str) -> Path:
    path = Path(folder) / name
    if not path.exists():
        raise SystemExit(f"{path} is missing: give --data DIR or set BILEVAX_DATA.")
    return path


def mnist(folder: str) -> tuple[np.ndarray, np.ndarray]:
    """60000 x 784 numbers in [0, 1], and the labels."""
    path = lambda name: find(folder, f"mnist/train-{name}-ubyte.gz")
    read = lambda name: gzip.decompress(path(name).read_bytes())
    x = np.frombuffer(read("images-idx3"), np.uint8, offset=16).reshape(-1, 784)
    y = np.frombuffer(read("labels-idx1"), np.uint8, offset=8)
    return (x / 255).astype(np.float32), y.astype(np.int32)


def noisy_mnist(folder: str, n: int = 5000, seed: int = 0) -> dict:
    """n + n class-balanced examples; half of the training labels are drawn anew."""
    x, y = mnist(folder)
    rng = np.random.default_rng(seed)
    rows = [rng.permutation(np.flatnonzero(y == c))[: n // 5] for c in range(10)]
    train = rng.permutation(np.concatenate([r[: n // 10] for r in rows]))
    val = rng.permutation(np.concatenate([r[n // 10 :] for r in rows]))
    given = y[train]
    given[: n // 2] = rng.integers(10, size=n // 2)
    bias = lambda i: jnp.asarray(np.pad(x[i], ((0, 0), (0, 1)), constant_values=1.0))
    return {
        "train": (bias(train), jnp.asarray(given)),
        "val": (bias(val), jnp.asarray(y[val])),
    }


@functools.cache
def omniglot(folder: str) -> np.ndarray:
    """(964 characters, 20 drawings, 28, 28), strokes 1, by area averaging."""
    kept = cache("omniglot.npz")
    if not kept.exists():
        np.savez_compressed(kept, x=_unpack(find(folder, "omniglot/images_background.zip")))
    return np.load(kept)["x"].astype(np.float32) / 255


def _unpack(path: Path) -> np.ndarray:
    from PIL import Image

    characters = {}
    with zipfile.ZipFile(path) as archive:
        for name in sorted(n for n in archive.namelist() if n.endswith(".png")):
            image = Image.open(io.BytesIO(archive.read(name))).convert("L")
            small = np.asarray(image.resize((28, 28), Image.Resampling.BOX))
            characters.setdefault(os.path.dirname(name), []).append(255 - small)
    return np.stack([np.stack(x) for x in characters.values()])


def few_shot(images: np.ndarray, seed: int, ways: int = 5, queries: int = 15) -> dict:
    """A task: one drawing of each of 5 characters to learn from, 15 of each to test on."""
    rng = np.random.default_rng(seed)
    rows = rng.choice(len(images), ways, replace=False)
    x = np.stack([images[r, rng.permutation(20)[: 1 + queries]] for r in rows])
    label = lambda n: jnp.asarray(np.repeat(np.arange(ways, dtype=np.int32), n))
    flat = lambda a: jnp.asarray(a.reshape(-1, 28, 28))
    return {"train": (flat(x[:, :1]), label(1)), "val": (flat(x[:, 1:]), label(queries))}


def digits(n: int = 200, noise: float = 0.3, seed: int = 0) -> dict:
    """n + n of scikit-learn's 8 x 8 digits; a part of the training labels is drawn anew."""
    from sklearn.datasets import load_digits

    x, y = load_digits(return_X_y=True)
    rng = np.random.default_rng(seed)
    rows = rng.permutation(len(x))[: 2 * n]
    x, y = ((x[rows] - x.mean()) / x.std()).astype(np.float32), y[rows].astype(np.int32)
    given = np.where(rng.random(n) < noise, rng.integers(10, size=n), y[:n]).astype(np.int32)
    pair = lambda x, y: (jnp.asarray(x), jnp.asarray(y))
    return {"train": pair(x[:n], given), "val": pair(x[n:], y[n:])}
