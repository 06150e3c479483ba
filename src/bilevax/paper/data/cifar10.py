"""CIFAR-10: small photographs of ten classes."""

import os

from . import _cifar
from ._dataset import Dataset, File, Split
from ._download import obtain

NAMES = (
    "airplane",
    "automobile",
    "bird",
    "cat",
    "deer",
    "dog",
    "frog",
    "horse",
    "ship",
    "truck",
)
ARCHIVE = "cifar-10-binary.tar.gz"
SHA256 = "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd"
TRAIN = {f"cifar-10-batches-bin/data_batch_{i}.bin": 10_000 for i in range(1, 6)}
TEST = {"cifar-10-batches-bin/test_batch.bin": 10_000}

DATASET = Dataset(
    name="cifar10",
    description="photographs of 10 classes, 32 x 32 RGB: 50,000 train, 10,000 test",
    licence="none stated; to be cited",
    citation="Krizhevsky 2009, Learning multiple layers of features from tiny images",
    forms=(
        _cifar.archive(ARCHIVE, "CIFAR-10", TRAIN, TEST, 1, NAMES),
        _cifar.images("CIFAR-10", NAMES),
    ),
    files=(File(ARCHIVE, _cifar.ADDRESS + ARCHIVE, SHA256, 170_052_171),),
    features=(_cifar.features("CIFAR-10", NAMES),),
)


def load(data_dir: str | os.PathLike | None = None) -> Split:
    """CIFAR-10: all of it, or what an npz holds; its `source` says which.

    **Arguments:**

    - `data_dir`: a folder with `cifar10/`, looked in first.

    **Returns:**

    A `Split` with images (n, 32, 32, 3), uint8.

    !!! example

        >>> from bilevax.paper import data
        >>> data.cifar10.DATASET.size  # bytes, fetched if they are nowhere
        170052171
        >>> data.cifar10.load().x_test.shape  # doctest: +SKIP
        (10000, 32, 32, 3)
    """
    return obtain(DATASET, data_dir).read()


def features(data_dir: str | os.PathLike | None = None) -> Split:
    """Features of CIFAR-10, computed by a network of your choice, in an npz file.

    **Arguments:**

    - `data_dir`: a folder with `cifar10/`, looked in first.

    **Returns:**

    A `Split` with features (n, d), float32, as they are, not standardised.

    !!! example

        >>> from bilevax.paper import data
        >>> x = data.cifar10.features().x_train  # doctest: +SKIP
    """
    return _cifar.find_features(DATASET, data_dir)
