"""CIFAR-100: small photographs of a hundred classes."""

import os

from . import _cifar
from ._dataset import Dataset, File, Split
from ._download import obtain

WORDS = """
    apple aquarium_fish baby bear beaver bed bee beetle bicycle bottle bowl boy bridge bus
    butterfly camel can castle caterpillar cattle chair chimpanzee clock cloud cockroach couch crab
    crocodile cup dinosaur dolphin elephant flatfish forest fox girl hamster house kangaroo keyboard
    lamp lawn_mower leopard lion lizard lobster man maple_tree motorcycle mountain mouse mushroom
    oak_tree orange orchid otter palm_tree pear pickup_truck pine_tree plain plate poppy porcupine
    possum rabbit raccoon ray road rocket rose sea seal shark shrew skunk skyscraper snail snake
    spider squirrel streetcar sunflower sweet_pepper table tank telephone television tiger tractor
    train trout tulip turtle wardrobe whale willow_tree wolf woman worm
"""
NAMES = tuple(WORDS.split())
ARCHIVE = "cifar-100-binary.tar.gz"
SHA256 = "58a81ae192c23a4be8b1804d68e518ed807d710a4eb253b1f2a199162a40d8ec"
TRAIN, TEST = {"cifar-100-binary/train.bin": 50_000}, {"cifar-100-binary/test.bin": 10_000}

DATASET = Dataset(
    name="cifar100",
    description="photographs of 100 classes, 32 x 32 RGB: 50,000 train, 10,000 test",
    licence="none stated; to be cited",
    citation="Krizhevsky 2009, Learning multiple layers of features from tiny images",
    forms=(
        _cifar.archive(ARCHIVE, "CIFAR-100", TRAIN, TEST, 2, NAMES),
        _cifar.images("CIFAR-100", NAMES),
    ),
    files=(File(ARCHIVE, _cifar.ADDRESS + ARCHIVE, SHA256, 168_513_733),),
    features=(_cifar.features("CIFAR-100", NAMES),),
)


def load(data_dir: str | os.PathLike | None = None) -> Split:
    """CIFAR-100 with its fine labels: all of it, or what an npz holds; its `source` says which.

    **Arguments:**

    - `data_dir`: a folder with `cifar100/`, looked in first.

    **Returns:**

    A `Split` with images (n, 32, 32, 3), uint8.

    !!! example

        >>> from bilevax.paper import data
        >>> data.cifar100.DATASET.size  # bytes, fetched if they are nowhere
        168513733
        >>> data.cifar100.load().x_test.shape  # doctest: +SKIP
        (10000, 32, 32, 3)
    """
    return obtain(DATASET, data_dir).read()


def features(data_dir: str | os.PathLike | None = None) -> Split:
    """Features of CIFAR-100, computed by a network of your choice, in an npz file.

    **Arguments:**

    - `data_dir`: a folder with `cifar100/`, looked in first.

    **Returns:**

    A `Split` with features (n, d), float32, as they are, not standardised.

    !!! example

        >>> from bilevax.paper import data
        >>> x = data.cifar100.features().x_train  # doctest: +SKIP
    """
    return _cifar.find_features(DATASET, data_dir)
