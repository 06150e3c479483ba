"""Files: written whole or not at all; read though they may be damaged or hostile.

Nothing that is read is executed or unpacked to disk, and no more is read than was agreed on.
"""

import errno
import hashlib
import lzma
import math
import os
import stat
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import IO, BinaryIO

import numpy as np
from numpy.lib import format


class DataError(ValueError):
    """Data that are missing, damaged, or not what their name says.

    !!! example

        >>> from bilevax.paper import data
        >>> try:
        ...     data.find(data.DATASETS["mnist"], "no/such/folder")
        ... except data.DataError as error:
        ...     print(error)
        data_dir = no/such/folder is not a folder; give one that holds data sets.
    """


@contextmanager
def atomic_write(path: Path, *, overwrite: bool = True) -> Iterator[BinaryIO]:
    """A file to write to, which takes the place of `path` when the block ends without an error;
    until then, and if it does not, `path` is as it was. Without `overwrite`, a `path` that is
    there by then stays, and `FileExistsError` is raised.
    """
    new = path.with_name(f".{path.name[:40]}.{os.getpid()}.new")  # a name has at most 255 bytes
    try:
        with open(new, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())  # a name must not be given to bytes that are not on disk
        if not overwrite and not _linked(new, path):
            open(path, "xb").close()
        os.replace(new, path)
    finally:
        new.unlink(missing_ok=True)


def _linked(new: Path, path: Path) -> bool:
    """Give the file the name `path`, if no other has it; not every file system has links."""
    try:
        os.link(new, path)
        return True
    except FileExistsError:
        raise
    except OSError:
        return False


BROKEN = (
    EOFError,
    NotImplementedError,  # a zip's unknown compression
    RuntimeError,  # a zip's password
    OSError,  # of gzip and bz2
    ValueError,
    OverflowError,
    lzma.LZMAError,
    struct.error,
    tarfile.TarError,
    zipfile.BadZipFile,
    zlib.error,
)


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """What the readers raise of a broken file, as one sentence."""
    try:
        yield
    except DataError:
        raise
    except BROKEN as error:
        if getattr(error, "errno", None) not in (None, errno.EINVAL):
            raise  # of the disk, not of the file's bytes, as a seek to nowhere is
        raise refuse(path, f"is damaged ({error})") from error


def refuse(path: Path, why: str) -> DataError:
    return DataError(f"{path} {why}; get it again.")


def sha256(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def inside(path: Path, name: str) -> str:
    """The name of an archive's entry, which must not lead out of the archive."""
    pure = PurePosixPath(name.replace("\\", "/"))
    if pure.is_absolute() or ".." in pure.parts or ":" in name:
        raise refuse(path, f"has the entry {name!r}, which leads out of it")
    return str(pure)


def zip_entries(archive: zipfile.ZipFile, limit: int) -> dict[str, zipfile.ZipInfo]:
    """The files of a zip, once their names and declared sizes are in order.

    zipfile gives no more bytes of an entry than it declares.
    """
    path, entries = Path(str(archive.filename)), {}
    for entry in archive.infolist():
        name = inside(path, entry.filename)
        if stat.S_ISLNK(entry.external_attr >> 16):
            raise refuse(path, f"has the entry {name}, which is no plain file")
        if not entry.is_dir():
            entries[name] = entry
    if sum(entry.file_size for entry in archive.infolist()) > limit:
        raise refuse(path, f"unpacks to more than {limit:,} bytes")
    return entries


def npz_names(path: Path) -> set[str]:
    """The names of the arrays of an npz file, without reading them."""
    with reading(path), zipfile.ZipFile(path) as archive:
        return {name.removesuffix(".npy") for name in archive.namelist()}


def npz_arrays(path: Path, limit: int = 2**30) -> dict[str, np.ndarray]:
    """The arrays of an npz file; pickled ones are refused, and sizes that do not add up."""
    arrays = {}
    with reading(path), zipfile.ZipFile(path) as archive:
        for name, entry in zip_entries(archive, limit).items():
            with archive.open(entry) as stream:
                _check_header(path, name, stream, entry.file_size)
            with archive.open(entry) as stream:
                arrays[name.removesuffix(".npy")] = format.read_array(stream, allow_pickle=False)
                stream.read()  # to the end: only there zipfile compares its checksum
    return arrays


def _check_header(path: Path, name: str, stream: IO[bytes], size: int) -> None:
    """An array's header says how much memory it takes: it must be what the file holds."""
    try:
        version = format.read_magic(stream)
        read = {(1, 0): format.read_array_header_1_0, (2, 0): format.read_array_header_2_0}[version]
        shape, _, dtype = read(stream)
    except (ValueError, KeyError) as error:
        raise refuse(path, f"has no plain array in {name}") from error
    if dtype.hasobject:
        raise refuse(path, f"has pickled objects in {name}, which are not read")
    if min(shape, default=0) < 0 or stream.tell() + math.prod(shape) * dtype.itemsize != size:
        raise refuse(path, f"has {size:,} bytes of {name}, which do not fit its header")
