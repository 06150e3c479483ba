"""Tables of examples: CSV, Parquet and NPZ, read as they are and written with more columns."""

import csv
import io
import zipfile
from array import array
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np
from numpy.lib import format

from ..._files import DataError, npz_arrays
from .problems import some
from .words import Places, Words

ADDED = ("weight", "suspect", "probability", "proposed", "proposed_probability")
"""Columns of the answer; a label is suspect if its `probability` is below the threshold."""
LEAST, RATIO = 2**28, 50
"""Bytes that every npz may unpack to, and how many times its own size a larger one may."""

Added = Mapping[str, np.ndarray]
Write = Callable[[BinaryIO, Added], None]


@dataclass(frozen=True)
class TableFile:
    """Columns under their names: lists of text, or arrays."""

    path: Path
    names: Sequence[str]
    """Of everything in the file, also of what is no column."""
    columns: Mapping[str, Sequence[str] | np.ndarray]
    places: Sequence[str]
    """Where each row stands, in words."""
    write: Write
    """To a file, with the columns of `ADDED`."""
    faults: Sequence[str] = ()
    """What is wrong with it, where the rest can be read."""

    def __len__(self) -> int:
        return len(self.places)


def read(path: Path) -> TableFile:
    """Read a table; its kind is told by the end of its name."""
    kinds = {".csv": _read_csv, ".tsv": _read_csv, ".parquet": _read_parquet, ".npz": _read_npz}
    if path.suffix.lower() not in kinds:
        raise DataError(f"{path} must end in .csv, .tsv, .parquet or .npz.")
    if not path.is_file():
        raise DataError(f"{path} is not a file; give the path of a table.")
    table = kinds[path.suffix.lower()](path)
    if not len(table) and not table.faults:
        raise DataError(f"{path} has no rows.")
    return table


def _read_csv(path: Path) -> TableFile:
    data = path.read_bytes()
    try:
        data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise DataError(
            f"{path} is not UTF-8 text (byte {error.start}); save it as CSV UTF-8, or convert it "
            "with iconv -f LATIN1 -t UTF-8."
        ) from None
    records = _records(path, data)
    first = next(records, None)
    if first is None or (not first.cells and all(not record.cells for record in records)):
        raise DataError(f"{path} is empty.")
    names = [name.removeprefix("\ufeff").strip() for name in first.cells]
    columns = [Words() for _ in names]
    lines, ends = array("q"), array("q", [first.end])
    ragged, empty = [], []
    for record in records:
        if not record.cells:  # allowed at the end of the file
            empty.append((record.line, 0))
            continue
        ragged += empty
        empty = []
        if len(record.cells) != len(names):
            ragged.append((record.line, len(record.cells)))
            continue
        for column, cell in zip(columns, record.cells, strict=True):
            column.append(cell)
        lines.append(record.line)
        ends.append(record.end)
    write = lambda file, added: _write_csv(file, data, ends, added)
    by_name = dict(zip(reversed(names), reversed(columns), strict=True))  # the first of two
    faults = [*_twice(path, names), *_ragged(path, ragged, len(names))]
    columns = {name: by_name[name] for name in names}
    return TableFile(path, names, columns, Places("line", lines), write, faults)


def _ragged(path: Path, found: Sequence[tuple[int, int]], n: int) -> list[str]:
    """Of lines and the number of their cells."""
    if not found:
        return []
    line, cells = found[0]
    more = f" (such lines: {len(found)})" if len(found) > 1 else ""
    return [
        f"{path}, line {line}, has {cells} cells and the header {n}{more}; mend or leave out the "
        "line."
    ]


class Record(NamedTuple):
    """The line where a record begins, its cells, and the byte where it ends."""

    line: int
    cells: list[str]
    end: int


def _records(path: Path, data: bytes) -> Iterator[Record]:
    """Of a CSV, one by one."""
    taken, size = 0, 0

    def watched() -> Iterator[str]:
        nonlocal taken, size
        for line in io.TextIOWrapper(io.BytesIO(data), "utf-8", newline=""):
            taken += 1
            size += len(line.encode("utf-8"))
            yield line

    head = data[: _first_line(data)].decode("utf-8")
    line = 1
    try:
        for cells in csv.reader(watched(), delimiter=_delimiter(head), strict=True):
            yield Record(line, cells, size)
            line = taken + 1
    except csv.Error as error:
        raise DataError(f"{path}, line {line}, cannot be read as CSV: {error}.") from None


def _first_line(data: bytes) -> int:
    ends = [i for i in (data.find(b"\n"), data.find(b"\r")) if i >= 0]
    return min(ends, default=len(data))


def _delimiter(text: str) -> str:
    """The comma, unless the header has none and has others."""
    head = text.splitlines()[0] if text else ""
    return next((c for c in ",;\t" if c in head), ",")


def _write_csv(file: BinaryIO, data: bytes, ends: Sequence[int], added: Added) -> None:
    """Every record as it was, to the letter, and more cells."""
    mark = _delimiter(data[: _first_line(data)].decode("utf-8"))
    body = zip(*(map(_cell, added[name]) for name in ADDED), strict=True)
    for k, (end, more) in enumerate(zip(ends, [ADDED, *body], strict=True)):
        text = data[ends[k - 1] if k else 0 : end]
        kept, cells = text.rstrip(b"\r\n"), io.StringIO()
        csv.writer(cells, delimiter=mark, lineterminator="").writerow(more)
        file.write(kept + (mark + cells.getvalue()).encode("utf-8") + text[len(kept) :])


def _cell(value: Any) -> str:
    return f"{value:.6f}" if isinstance(value, np.floating) else str(value)


def _read_parquet(path: Path) -> TableFile:
    try:
        import pyarrow
        import pyarrow.parquet as parquet
    except ImportError as error:
        raise ImportError(
            "Parquet needs pyarrow: in a clone of bilevax, pip install '.[tools]'."
        ) from error
    try:
        table = parquet.read_table(path)
    except pyarrow.ArrowException as error:
        said = str(error).splitlines()[0].rstrip(".")
        raise DataError(f"{path} cannot be read as Parquet: {said}.") from None
    require_distinct(path, table.column_names)
    columns = {name: _arrow(table[name]) for name in table.column_names}

    def write(file: BinaryIO, added: Added) -> None:
        new = table
        for name in ADDED:
            new = new.append_column(name, pyarrow.array(added[name].tolist()))
        parquet.write_table(new, file)

    return TableFile(path, table.column_names, columns, _numbered(table.num_rows), write)


def _arrow(column: Any) -> Sequence[str] | np.ndarray:
    """Numbers with NaN, or texts with "", where there is nothing."""
    import pyarrow.types as types

    values = column.to_pylist()
    if types.is_boolean(column.type) or types.is_integer(column.type):
        return np.asarray(values, float) if column.null_count else np.asarray(values)
    if types.is_floating(column.type):
        return np.asarray(values, float)
    return ["" if value is None else str(value) for value in values]


def _read_npz(path: Path) -> TableFile:
    arrays = npz_arrays(path, limit=max(LEAST, RATIO * path.stat().st_size))
    given = next((name for name in ("X", "x") if name in arrays), None)
    if given is None or arrays[given].ndim < 2:
        raise DataError(f"{path} has no array X with a row of features for each example.")
    n = len(arrays[given])
    flat = arrays[given].reshape(n, -1)
    flat = flat if flat.dtype.kind in "biuf" else flat.astype(str)
    columns = {f"{given}[{j}]": flat[:, j] for j in range(flat.shape[1])}
    columns |= {k: a for k, a in arrays.items() if k != given and a.shape == (n,)}

    def write(file: BinaryIO, added: Added) -> None:
        with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, a in (arrays | dict(added)).items():  # numpy.savez refuses some names
                with archive.open(f"{name}.npy", "w", force_zip64=True) as part:
                    format.write_array(part, a, allow_pickle=False)

    return TableFile(path, list(arrays), columns, _numbered(n), write)


def _numbered(n: int) -> Places:
    return Places("row", range(n))


def require_distinct(path: Path, names: Sequence[str]) -> None:
    for fault in _twice(path, names):
        raise DataError(fault)


def _twice(path: Path, names: Sequence[str]) -> list[str]:
    twice = [name for name, n in Counter(names).items() if n > 1]
    return [f"{path} has two columns named {some(twice)}; rename one."] if twice else []
