"""MNIST: handwritten digits."""

import os

from . import _idx
from ._dataset import Dataset, Split
from ._download import obtain

NAMES = tuple("0123456789")

DATASET = Dataset(
    name="mnist",
    description="handwritten digits, 28 x 28: 60,000 train, 10,000 test",
    licence="none stated; often given as CC BY-SA 3.0",
    citation="LeCun, Bottou, Bengio, Haffner 1998, Gradient-based learning applied to document "
    "recognition",
    forms=(_idx.four(NAMES, "MNIST, all images: 60,000 train and 10,000 test"),),
    files=_idx.files(
        "https://storage.googleapis.com/cvdf-datasets/mnist/",  # the first address is gone
        ("440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609", 9912422),
        ("3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c", 28881),
        ("8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6", 1648877),
        ("f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6", 4542),
    ),
)


def load(data_dir: str | os.PathLike | None = None) -> Split:
    """MNIST.

    **Arguments:**

    - `data_dir`: a folder with `mnist/`, looked in first.

    **Returns:**

    A `Split` with images (n, 28, 28), uint8, ink 255 on 0.

    !!! example

        >>> from bilevax.paper import data
        >>> data.mnist.DATASET.size  # bytes, fetched if they are nowhere
        11594722
        >>> data.mnist.load().x_train.shape  # doctest: +SKIP
        (60000, 28, 28)
    """
    return obtain(DATASET, data_dir).read()
