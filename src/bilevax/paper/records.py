"""Runs on disk: `config.toml`, `env.json`, `records.jsonl`.

A run is a folder. Its records are flat JSON objects, one a line, only ever appended: a run
that is killed loses at most the line it was writing, and that line is cut away when the run
goes on.
"""

import json
import os
import platform
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Self

from .._files import atomic_write
from .._outer.lock import locked

Row = dict[str, Any]

PACKAGES = ("bilevax", "jax", "jaxlib", "equinox", "optax", "lineax", "numpy", "scikit-learn")
CONFIG, ENV, ROWS = "config.toml", "env.json", "records.jsonl"
DEEPEST = 20
DAMAGED = (ValueError, RecursionError)
"""What readers of TOML and JSON raise; ever deeper brackets end in the second."""


class RunError(ValueError):
    """A folder that cannot be written to, or read, as a run.

    !!! example

        >>> from bilevax.paper import records
        >>> try:
        ...     records.load("no/such/run")
        ... except records.RunError as error:
        ...     print(error)
        no/such/run is not a run: it has no config.toml; give a folder that run made.
    """


@dataclass(frozen=True)
class Run:
    """A run as it stands on disk.

    !!! example

        >>> from pathlib import Path
        >>> from bilevax.paper.records import Run
        >>> rows = [{"kind": "step", "loss": 0.5}, {"kind": "end", "loss": 0.1}]
        >>> run = Run(Path("run"), {"experiment": "toy"}, {}, rows)
        >>> run.experiment, run.of("end")
        ('toy', [{'kind': 'end', 'loss': 0.1}])
    """

    path: Path
    config: Row
    env: Row
    rows: list[Row]

    @property
    def experiment(self) -> str:
        return str(self.config.get("experiment", ""))

    def of(self, kind: str, **where: Any) -> list[Row]:
        """The records of a kind that have these values."""
        wanted = {"kind": kind} | where
        return [row for row in self.rows if all(row.get(k) == v for k, v in wanted.items())]


def holds_run(path: str | os.PathLike) -> bool:
    """Whether a folder holds a run, finished or not.

    !!! example

        >>> from bilevax.paper import records
        >>> records.holds_run("no/such/run")
        False
    """
    return (Path(path).expanduser() / CONFIG).is_file()


def load(path: str | os.PathLike) -> Run:
    """Read a run.

    **Arguments:**

    - `path`: its folder.

    **Returns:**

    A `Run`; a line that a killed run left unfinished is not in it.

    !!! example

        >>> import tempfile
        >>> from bilevax.paper import records
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     records.Records(folder, {"experiment": "mine", "T": 100}).close()
        ...     records.load(folder).config
        {'experiment': 'mine', 'T': 100}
    """
    path = Path(path).expanduser()
    missing = [name for name in (CONFIG, ENV, ROWS) if not (path / name).is_file()]
    if missing:
        raise RunError(f"{path} is not a run: it has no {missing[0]}; {_instead(path)}.")
    try:
        config = _shallow(tomllib.loads((path / CONFIG).read_text("utf-8")))
        env = _object((path / ENV).read_bytes())
    except DAMAGED as error:
        raise RunError(f"{path} is not a run that can be read: {error}.") from error
    return Run(path, config, env, list(_rows(path / ROWS)))


def _instead(path: Path) -> str:
    inside = sorted(str(config.parent) for config in path.glob(f"*/{CONFIG}"))
    return f"it holds runs: give {' '.join(inside)}" if inside else "give a folder that run made"


def _rows(path: Path) -> Iterator[Row]:
    lines, _ = _split(path)
    for number, line in enumerate(lines.splitlines(), 1):
        try:
            yield _object(line)
        except DAMAGED as error:
            raise RunError(f"{path}, line {number}, is damaged: {error}.") from error


def _object(text: bytes) -> Row:
    value = json.loads(text)
    if not isinstance(value, dict):
        raise ValueError(f"{type(value).__name__} in place of an object")
    return _shallow(value) if text.count(b"[") + text.count(b"{") > DEEPEST else value


def _shallow(value: Any, left: int = DEEPEST) -> Any:
    """A value that can be shown: lists in lists, but not without end."""
    if left == 0:
        raise ValueError(f"lists in lists, more than {DEEPEST} deep")
    inside = value.values() if isinstance(value, dict) else value
    for part in inside if isinstance(value, dict | list) else ():
        _shallow(part, left - 1)
    return value


def _split(path: Path) -> tuple[bytes, int]:
    """The whole lines of a file, and how many bytes of a last, unfinished one follow."""
    content = path.read_bytes()
    end = content.rfind(b"\n") + 1
    return content[:end], len(content) - end


class Records:
    """A run that is being written.

    **Arguments:**

    - `path`: a folder for this run alone, which is created.
    - `config`: the settings, a flat table; what is None is left out.
    - `keys`: the columns that tell rows apart. A row with the same values there as one that was
        written is not written again, so that a run which resumes from a checkpoint may repeat
        steps. Without keys every row is written.
    - `resume`: continue the run that is there, if it has the same settings.

    !!! example

        >>> import tempfile
        >>> from bilevax.paper.records import Records, load
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     with Records(folder, {"experiment": "mine"}) as records:
        ...         records.add(kind="evaluation", step=10, loss=0.5)
        ...     load(folder).rows
        [{'kind': 'evaluation', 'step': 10, 'loss': 0.5}]
    """

    def __init__(
        self,
        path: str | os.PathLike,
        config: Mapping[str, Any],
        *,
        keys: Sequence[str] = (),
        resume: bool = False,
    ):
        self.path, self._keys = Path(path).expanduser(), tuple(keys)
        self._config = {k: v for k, v in config.items() if v is not None}
        self._seen: set[tuple] = set()
        with ExitStack() as stack:
            if not holds_run(self.path):
                self._begin()
                resume = True
            stack.enter_context(locked(self.path))
            self._continue(resume)
            self._file = stack.enter_context(open(self.path / ROWS, "ab"))
            self._open = stack.pop_all()

    def _begin(self) -> None:
        if self.path.exists() and any(self.path.iterdir()):
            raise RunError(f"{self.path} is not empty and not a run; give another folder.")
        self.path.mkdir(parents=True, exist_ok=True)
        (self.path / ENV).write_text(json.dumps(environment(), indent=2) + "\n", "utf-8")
        (self.path / ROWS).touch()
        with atomic_write(self.path / CONFIG) as file:  # last: with it, the folder is a run
            file.write(toml(self._config).encode())

    def _continue(self, resume: bool) -> None:
        if not resume:
            raise RunError(f"{self.path} holds a run; give resume=True, or another folder.")
        there = load(self.path)
        other = sorted(k for k in there.config | self._config if not self._same(there.config, k))
        if other:
            k = other[0]
            got, had = self._config.get(k, "nothing"), there.config.get(k, "nothing")
            raise RunError(
                f"{self.path} holds a run with {k} = {had}, not {got}; use its settings."
            )
        _, loose = _split(self.path / ROWS)
        if loose:
            with open(self.path / ROWS, "r+b") as file:
                file.truncate(os.path.getsize(self.path / ROWS) - loose)
        self._seen = {self._key(row) for row in there.rows}

    def _same(self, config: Row, k: str) -> bool:
        plain = lambda value: json.loads(json.dumps(value))
        return plain(config.get(k)) == plain(self._config.get(k))

    def _key(self, row: Mapping[str, Any]) -> tuple:
        return tuple(row.get(k) for k in self._keys)

    def has(self, **key: Any) -> bool:
        """Whether there is a row with exactly these values of the keys."""
        return bool(self._keys) and self._key(key) in self._seen

    def add(self, **row: Any) -> None:
        """Append a row, unless one with its keys is there; it is on disk when this returns."""
        self.extend([row])

    def extend(self, rows: Iterable[Row]) -> None:
        """Append rows, as `add` does; they are on disk when this returns."""
        for row in rows:
            if not self.has(**row):
                self._seen.add(self._key(row))
                self._file.write(json.dumps(row, default=_plain).encode() + b"\n")
        self._file.flush()
        os.fsync(self._file.fileno())

    def close(self) -> None:
        self._open.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def _plain(value: Any) -> Any:
    """Arrays and their scalars, as JSON knows them."""
    return value.tolist()


def toml(config: Mapping[str, Any]) -> str:
    """A flat table of numbers, strings, and lists of them, as TOML.

    !!! example

        >>> from bilevax.paper.records import toml
        >>> print(toml({"T": 100, "rule": "Reverse(K=5)"}), end="")
        T = 100
        rule = "Reverse(K=5)"
    """
    # JSON writes these as TOML does, except for the delete character
    spell = lambda value: json.dumps(value, ensure_ascii=False, allow_nan=False)
    return "".join(f"{k} = {spell(v)}\n" for k, v in config.items()).replace("\x7f", "\\u007f")


def environment() -> Row:
    """Machine and versions, as every run keeps them.

    !!! example

        >>> from bilevax.paper.records import environment
        >>> sorted(environment())
        ['cores', 'packages', 'processor', 'python', 'system']
    """
    return {
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "processor": _processor(),
        "cores": os.cpu_count(),
        "packages": {name: _version(name) for name in PACKAGES},
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
    except OSError:
        return platform.processor()
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None
