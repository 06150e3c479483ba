"""Fetching: pooch, with a transfer that goes on where it broke off."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

from ..._files import DataError, sha256
from . import _places
from ._dataset import Dataset, File, needs
from ._places import Found

WAIT = (10, 60)  # seconds: to connect, between two pieces


def obtain(dataset: Dataset, data_dir: str | os.PathLike | None = None) -> Found:
    """Where a set is; if it is nowhere, fetch it first."""
    here = _places.find(dataset, data_dir)
    if here is not None:
        return here
    looked = ", ".join(str(place) for place in _places.places(data_dir))
    return _fetched(dataset, _places.cache(), f"is not in {looked} and ")


def download(dataset: Dataset, place: str | os.PathLike | None = None) -> Found:
    """Fetch a set from its official address; files that are there already stay.

    **Arguments:**

    - `dataset`: one of `DATASETS`.
    - `place`: where to create the folder of the set. Default: the user's cache.

    **Returns:**

    The set as it was `Found`, every file verified by its SHA-256.

    !!! example

        >>> from bilevax.paper import data
        >>> data.download(data.DATASETS["digits"]).paths  # with scikit-learn: nothing to fetch
        ()
    """
    return _fetched(dataset, _places.cache() if place is None else Path(place).expanduser(), "")


def _fetched(dataset: Dataset, place: Path, looked: str) -> Found:
    try:
        for file in dataset.files:
            fetch(file, place / dataset.name)
    except OSError as error:
        why = f"{dataset.name} {looked}could not be fetched ({error})"
        raise DataError(f"{why}: {_ways(dataset)}") from error
    (paths,) = dataset.forms[0].there(place / dataset.name)
    return Found(dataset, dataset.forms[0], place, paths)


def _ways(dataset: Dataset) -> str:
    """How to get a set that is nowhere."""
    files = ", ".join(file.name for file in dataset.files)
    address = dataset.files[0].url.rsplit("/", 1)[0] + "/"
    return (
        f"give data_dir, or set {_places.VARIABLE} to, a folder with {dataset.name}/ and in it "
        f"{files}; or put these files, from {address}, into {_places.cache() / dataset.name}; "
        f"or run `bilevax data fetch {dataset.name}` when there is a network."
    )


def fetch(file: File, folder: Path) -> Path:
    """Have one file in a folder, whole and verified, or not at all."""
    try:
        import pooch
    except ModuleNotFoundError as error:
        raise needs(error) from error
    path, part = folder / file.name, folder / f"{file.name}.part"
    if path.is_file() and sha256(path) != file.sha256:
        raise DataError(
            f"{path} is there with other bytes than the official file's; move it away to fetch it."
        )

    def downloader(url: str, output_file: Any, _: Any) -> None:
        _complete(file, part)
        os.replace(part, output_file)

    pooch.retrieve(
        file.url,
        f"sha256:{file.sha256}",
        file.name,
        folder,
        downloader=downloader,  # pyright: ignore[reportArgumentType]  # pooch's type is wrong
    )
    return path


def _complete(file: File, part: Path) -> None:
    """All of a file in `part`, with the right hash."""
    begun = part.exists()
    _transfer(file, part)
    got = sha256(part)
    if got == file.sha256:
        return
    part.unlink()
    if begun:  # what an earlier download left may be of another file
        return _complete(file, part)
    raise DataError(
        f"{file.url} gave a file with SHA-256 {got}, not {file.sha256}; it was not kept: "
        "try later, or get the file elsewhere."
    )


def _transfer(file: File, part: Path) -> None:
    """Go on from what is there, again after every break that came after some progress."""
    import requests
    import urllib3

    with _bar(file) as show:
        while (had := _size(part)) != file.size:
            try:
                _piece(file, part, show)
            except (requests.RequestException, urllib3.exceptions.HTTPError) as error:
                if _size(part) <= had:
                    raise OSError(f"{type(error).__name__} at {file.url}") from error
            if _size(part) <= had:
                raise OSError(f"{file.url} gives no more than {had:,} bytes")


def _piece(file: File, part: Path, show: Callable[[int], None]) -> None:
    """One request, for all that is not there yet."""
    import requests

    have = _size(part)
    headers = {"Accept-Encoding": "identity"} | ({"Range": f"bytes={have}-"} if have else {})
    with requests.get(file.url, headers=headers, stream=True, timeout=WAIT) as answer:
        if answer.status_code == requests.codes.requested_range_not_satisfiable:
            part.unlink()
            raise OSError(f"{file.url} has no more than the {have:,} bytes that were here")
        answer.raise_for_status()
        onward = answer.headers.get("Content-Range", "").startswith(f"bytes {have}-")
        have = have if onward else 0
        with open(part, "ab" if onward else "wb") as out:
            for chunk in answer.raw.stream(2**16, decode_content=False):
                have += len(chunk)
                if have > file.size:
                    break
                out.write(chunk)
                show(have)
    if have > file.size:
        part.unlink()
        raise DataError(f"{file.url} sends more than the {file.size:,} bytes of {file.name}.")


def _size(part: Path) -> int:
    return part.stat().st_size if part.exists() else 0


@contextmanager
def _bar(file: File) -> Iterator[Callable[[int], None]]:
    console = Console(stderr=True)
    columns = TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn()
    with Progress(*columns, console=console, disable=not console.is_terminal) as progress:
        task = progress.add_task(file.name, total=file.size)
        yield lambda have: progress.update(task, completed=have)
