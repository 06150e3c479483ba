"""Data sets: found, fetched, verified, read.

    split = data.mnist.load()           # x_train, y_train, x_test, y_test, names, source
    split = data.cifar10.features()     # the same, of features
    omniglot = data.omniglot.load()     # images (1623, 20, 28, 28), alphabets, characters
    images = data.glyphs.load()         # invented characters, drawn on the spot

A set is looked for in `data_dir` (else in the folder that BILEVAX_DATA names) and in the user's
cache, and then fetched from its official address.
"""

from ..._files import DataError as DataError
from . import cifar10 as cifar10
from . import cifar100 as cifar100
from . import digits as digits
from . import fashion_mnist as fashion_mnist
from . import glyphs as glyphs
from . import mnist as mnist
from . import omniglot as omniglot
from ._dataset import Dataset as Dataset
from ._dataset import File as File
from ._dataset import Form as Form
from ._dataset import Split as Split
from ._download import download as download
from ._places import Found as Found
from ._places import find as find
from ._verify import Checked as Checked
from ._verify import check as check
from .omniglot import Omniglot as Omniglot

DATASETS: dict[str, Dataset] = {
    dataset.name: dataset
    for dataset in (
        mnist.DATASET,
        fashion_mnist.DATASET,
        omniglot.DATASET,
        cifar10.DATASET,
        cifar100.DATASET,
        digits.DATASET,
    )
}
"""The sets that are fetched or come with a library, by name."""
