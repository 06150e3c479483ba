"""Omniglot: handwritten characters of fifty alphabets, twenty drawings of each."""

import hashlib
import os
import re
import warnings
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.progress import Progress

from ..._files import DataError, atomic_write, npz_arrays, reading, refuse, sha256, zip_entries
from . import _places
from ._dataset import Dataset, File, Form, needs
from ._download import obtain

CHARACTERS, DRAWERS, SIDE = 1623, 20, 105
BACKGROUND = 964
"""The first characters, up to this one, are the background set, for training."""

ENTRY = re.compile(r"images_(?:background|evaluation)/([^/]+)/(character\d+)/(\d{4})_(\d\d)\.png")
ADDRESS = "https://github.com/brendenlake/omniglot/raw/master/python/"
ZIPS = ("images_background.zip", "images_evaluation.zip")
UNPACKED = 2**26  # bytes; the PNGs of the larger zip have 5 million


@dataclass(frozen=True)
class Omniglot:
    """Drawings, ordered by the official numbers of the characters.

    !!! example

        >>> from bilevax.paper import data
        >>> sorted(data.Omniglot.__dataclass_fields__)
        ['alphabets', 'characters', 'images', 'source']
    """

    images: np.ndarray
    """(1623, 20, size, size), uint8, ink 255 on 0: character, drawer, image."""
    alphabets: tuple[str, ...]
    """The alphabet of each character."""
    characters: tuple[str, ...]
    """The name of each character in its alphabet."""
    source: str


def load(data_dir: str | os.PathLike | None = None, size: int = 28) -> Omniglot:
    """Omniglot; the decoded images are kept in the user's cache.

    **Arguments:**

    - `data_dir`: a folder with `omniglot/`, looked in first.
    - `size`: the side to which the images of 105 x 105 are scaled, by the mean over areas.

    **Returns:**

    An `Omniglot`; its first `BACKGROUND` characters are the background set.

    !!! example

        >>> from bilevax.paper import data
        >>> data.omniglot.BACKGROUND
        964
        >>> data.omniglot.load().images.shape  # doctest: +SKIP
        (1623, 20, 28, 28)
    """
    if not 1 <= size <= SIDE:
        raise DataError(f"size = {size} is not a side that 105 can be scaled to; give 1 to 105.")
    return _kept(obtain(DATASET, data_dir).paths, size)


def _kept(paths: Sequence[Path], size: int) -> Omniglot:
    """The images from the cache, if they are there from the same zips."""
    sums = "".join(sha256(path) for path in paths)
    key = hashlib.sha256(f"area {size} {sums}".encode()).hexdigest()[:16]
    kept = _places.cache() / DATASET.name / f"decoded-{size}-{key}.npz"
    if kept.is_file():
        try:
            return _restore(kept, size)
        except (DataError, KeyError):
            pass  # a cache that is damaged is made again
    glyphs = decode(paths, size)
    try:
        _keep(kept, glyphs)
    except OSError as error:
        warnings.warn(f"Decoded Omniglot is not kept in {kept}: {error}.", stacklevel=3)
    return glyphs


def _restore(kept: Path, size: int) -> Omniglot:
    arrays = npz_arrays(kept)
    images, alphabets, characters = (arrays[k] for k in ("images", "alphabets", "characters"))
    shapes = images.shape, alphabets.shape, characters.shape
    if shapes != ((CHARACTERS, DRAWERS, size, size), (CHARACTERS,), (CHARACTERS,)):
        raise refuse(kept, "has other shapes than Omniglot")
    return Omniglot(images, tuple(alphabets.tolist()), tuple(characters.tolist()), _source(size))


def _keep(kept: Path, glyphs: Omniglot) -> None:
    kept.parent.mkdir(parents=True, exist_ok=True)
    alphabets, characters = np.array(glyphs.alphabets), np.array(glyphs.characters)
    with atomic_write(kept) as file:
        np.savez_compressed(file, images=glyphs.images, alphabets=alphabets, characters=characters)


def _source(size: int) -> str:
    return f"Omniglot, background and evaluation set, scaled to {size} x {size} by area"


def decode(paths: Sequence[Path], size: int = 28) -> Omniglot:
    """Read every image of the two zips; `load` does so, and keeps the result.

    **Arguments:**

    - `paths`: the zips of the background and of the evaluation set.
    - `size`: the side to which the images of 105 x 105 are scaled, by the mean over areas.

    **Returns:**

    An `Omniglot`.

    !!! example

        >>> from bilevax.paper.data import find, omniglot
        >>> omniglot.decode(find(omniglot.DATASET).paths).images.shape  # doctest: +SKIP
        (1623, 20, 28, 28)
    """
    images = np.zeros((CHARACTERS, DRAWERS, size, size), np.uint8)
    names = np.full((CHARACTERS, DRAWERS, 2), "", object)
    for path, entry, png in _pngs(paths):
        alphabet, character, number, drawer = entry.groups()
        at = int(number) - 1, int(drawer) - 1
        if not (0 <= at[0] < CHARACTERS and 0 <= at[1] < DRAWERS) or names[at][0]:
            raise refuse(path, f"has {entry.string}, which is no number of Omniglot's or a repeat")
        names[at] = alphabet, character
        images[at] = _image(path, entry.string, png, size)
    if not names.all():
        i, j, _ = np.argwhere(names == "")[0].tolist()
        lacks = paths[0 if i < BACKGROUND else 1]
        raise refuse(lacks, f"has no drawing {j + 1} of character {i + 1}")
    alphabets, characters = names[:, 0].T.tolist()
    return Omniglot(images, tuple(alphabets), tuple(characters), _source(size))


def _pngs(paths: Sequence[Path]) -> Iterator[tuple[Path, re.Match, bytes]]:
    console = Console(stderr=True)
    with Progress(console=console, disable=not console.is_terminal, transient=True) as progress:
        task = progress.add_task("Decoding Omniglot", total=CHARACTERS * DRAWERS)
        for path in paths:
            with reading(path), zipfile.ZipFile(path) as archive:
                for name, entry in zip_entries(archive, UNPACKED).items():
                    if match := ENTRY.fullmatch(name):
                        yield path, match, archive.read(entry)
                        progress.advance(task)


def _image(path: Path, name: str, png: bytes, size: int) -> np.ndarray:
    """Ink 255 on 0, each pixel the mean over its area."""
    try:
        from PIL import Image
    except ModuleNotFoundError as error:
        raise needs(error) from error
    try:
        with Image.open(BytesIO(png), formats=["PNG"]) as image:
            if image.size != (SIDE, SIDE):
                raise refuse(path, f"has {name} of {image.size} pixels, not 105 x 105")
            scaled = image.convert("L").resize((size, size), Image.Resampling.BOX)
    except (OSError, SyntaxError, Image.DecompressionBombError) as error:
        raise refuse(path, f"has {name}, which is no image ({error})") from error
    return 255 - np.asarray(scaled)


DATASET = Dataset(
    name="omniglot",
    description="characters of 50 alphabets, 105 x 105: 1,623, of each 20 drawings",
    licence="MIT",
    citation="Lake, Salakhutdinov, Tenenbaum 2015, Human-level concept learning through "
    "probabilistic program induction",
    forms=(Form(ZIPS, decode),),
    files=(
        File(
            ZIPS[0],
            ADDRESS + ZIPS[0],
            "ad41ab679c8b5d90b271ef46be6987cc81211774a695c29dcc5367b2b26ee640",
            9_464_212,
        ),
        File(
            ZIPS[1],
            ADDRESS + ZIPS[1],
            "1f61a8f3366785b057fc117d9228e78a16e3d976c8953b2a10fcc74cf0609cee",
            6_462_886,
        ),
    ),
)
