"""scikit-learn's digits: small, and always there."""

from collections.abc import Sequence
from pathlib import Path

from ._dataset import Dataset, Form, Split, needs

TRAIN = 1437  # four fifths; the file is in the order of the writers, so the rest has other hands


def _read(_: Sequence[Path]) -> Split:
    try:
        from sklearn.datasets import load_digits
    except ModuleNotFoundError as error:
        raise needs(error) from error
    images, labels = load_digits(return_X_y=True)
    x, y = images.reshape(-1, 8, 8).astype("u1"), labels.astype("i4")
    source = "scikit-learn's digits, divided here: the first 1,437 train and the last 360 test"
    names = tuple("0123456789")
    return Split(x[:TRAIN], y[:TRAIN], x[TRAIN:], y[TRAIN:], names, source)


DATASET = Dataset(
    name="digits",
    description="handwritten digits, 8 x 8: 1,797, with scikit-learn",
    licence="CC BY 4.0",
    citation="Alpaydin, Kaynak 1998, Optical Recognition of Handwritten Digits, UCI Machine "
    "Learning Repository",
    forms=(Form((), _read),),
)


def load() -> Split:
    """scikit-learn's digits.

    **Returns:**

    A `Split` with images (n, 8, 8), uint8, ink 16 on 0.

    !!! example

        >>> from bilevax.paper import data
        >>> data.digits.load().x_test.shape
        (360, 8, 8)
    """
    return _read(())
