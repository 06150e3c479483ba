"""Fashion-MNIST: pieces of clothing in MNIST's format."""

import os

from . import _idx
from ._dataset import Dataset, Split
from ._download import obtain

NAMES = (
    "T-shirt/top",
    "Trouser",
    "Pullover",
    "Dress",
    "Coat",
    "Sandal",
    "Shirt",
    "Sneaker",
    "Bag",
    "Ankle boot",
)

DATASET = Dataset(
    name="fashion-mnist",
    description="pieces of clothing, 28 x 28: 60,000 train, 10,000 test",
    licence="MIT",
    citation="Xiao, Rasul, Vollgraf 2017, Fashion-MNIST: a novel image dataset for benchmarking "
    "machine learning algorithms",
    forms=(_idx.four(NAMES, "Fashion-MNIST, all images: 60,000 train and 10,000 test"),),
    files=_idx.files(
        "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",  # has no https
        ("3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84", 26421880),
        ("a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845", 29515),
        ("346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073", 4422102),
        ("67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5", 5148),
    ),
)


def load(data_dir: str | os.PathLike | None = None) -> Split:
    """Fashion-MNIST.

    **Arguments:**

    - `data_dir`: a folder with `fashion-mnist/`, looked in first.

    **Returns:**

    A `Split` with images (n, 28, 28), uint8, cloth bright on 0.

    !!! example

        >>> from bilevax.paper import data
        >>> data.fashion_mnist.DATASET.size  # bytes, fetched if they are nowhere
        30878645
        >>> data.fashion_mnist.load().x_train.shape  # doctest: +SKIP
        (60000, 28, 28)
    """
    return obtain(DATASET, data_dir).read()
