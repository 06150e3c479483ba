"""`bilevax clean`: every row comes back as it was, bad files get a sentence, nothing is lost."""

import csv
import io
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import bilevax as bx
from bilevax.apps import HyperCleaner
from bilevax.apps._clean import prepare, table_file
from bilevax.apps._clean.suspects import Finding, Summary, page
from bilevax.apps._clean.table_file import require_distinct
from bilevax.cli._app import start

LABELS = ("<script>alert(1)</script>", 'b "quoted", with a comma')


def rows(n=40, seed=0):
    """Two numbers, a word, an id and a label that the first number decides."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, 2)).round(3)
    y = [LABELS[int(a > 0)] for a in x[:, 0]]
    return [[str(a), f" {b}", "ab"[i % 2], f"id-{i}", y[i]] for i, (a, b) in enumerate(x)]


def write(path, body, head=("a", "b", "word", "id", "y"), end="\r\n"):
    with open(path, "w", newline="", encoding="utf-8") as file:
        csv.writer(file, lineterminator=end).writerows([head, *body])
    return path


@pytest.fixture
def files(tmp_path):
    wrong = rows(60)
    for row in wrong[:6]:
        row[-1] = LABELS[LABELS.index(row[-1]) - 1]
    return write(tmp_path / "train.csv", wrong), write(tmp_path / "trusted.csv", rows(60, 1))


def call(monkeypatch, capsys, *words):
    """Exit code and what was said."""
    monkeypatch.setattr(sys, "argv", ["bilevax", "clean", *map(str, words)])
    with pytest.raises(SystemExit) as done:
        start()
    said = capsys.readouterr()
    return done.value.code or 0, said.out + said.err


def test_every_row_comes_back(files, tmp_path, monkeypatch, capsys):
    train, trusted = files
    before, out = train.read_bytes(), tmp_path / "<img src=x onerror=alert(1)>.csv"
    words = (train, "--trusted", trusted, "-o", out, "--steps", "10")
    code, said = call(monkeypatch, capsys, *words, "--ignore", "id")
    assert code == 0, said
    lines = out.read_bytes().decode().split("\r\n")
    given = before.decode().split("\r\n")
    assert all(a.startswith(b + ",") for a, b in zip(lines[:-1], given[:-1], strict=True))
    assert lines[0] == ",".join([given[0], *table_file.ADDED]) and train.read_bytes() == before
    with open(out, newline="") as file:
        table = list(csv.DictReader(file))
    assert [row["suspect"] for row in table[:6]].count("True") >= 4
    assert all(0 < float(row["weight"]) < 1 for row in table)
    number = lambda row, name: float(row[name])
    for row in table:  # what makes a label suspect is one number of the file
        assert (row["suspect"] == "True") == (number(row, "probability") < 0.15)
        assert row["proposed"] in LABELS and number(row, "proposed_probability") > 0.49
        same = np.isclose(number(row, "probability"), number(row, "proposed_probability"))
        assert same == (row["proposed"] == row["y"])
    text = out.with_suffix(".html").read_text("utf-8")
    assert "<script>alert" not in text and "&lt;script&gt;" in text
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted(
        ["train.csv", "trusted.csv", out.name, out.with_suffix(".html").name]
    )
    code, said = call(monkeypatch, capsys, *words, "--ignore", "id")
    assert code == 1 and "exists and is not overwritten" in said


def npy(array):
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


@pytest.fixture
def unlearned(monkeypatch):
    """For claims about files: the fit keeps its first lam."""

    def _minimize(self, p):
        self.rule_ = bx.Reverse()
        return bx.Result(p.lam, {}, {}, None, 0, "steps")

    monkeypatch.setattr(HyperCleaner, "_minimize", _minimize)
    monkeypatch.setattr(shutil, "rmtree", lambda folder: None)  # there are no checkpoints


@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("factor", [1, 1000])
def test_another_scale_is_said_of_files(factor, unlearned, files, tmp_path, monkeypatch, capsys):
    """Without words of scikit-learn; a word that no trusted row has is nothing to warn of."""
    body = [
        [f"{factor * float(a)}", f"{factor * float(b)}", "a", *r] for a, b, _, *r in rows(60, 1)
    ]
    trusted, out = write(tmp_path / "other.csv", body), tmp_path / "out.csv"
    words = (files[0], "--trusted", trusted, "-o", out, "--ignore", "id", "--steps", 2)
    code, said = call(monkeypatch, capsys, *words)
    assert code == 0, said
    assert (f"{trusted} are on another scale than in {files[0]}" in said) == (factor > 1)
    assert "X_trusted" not in said and "_clean.py" not in said


@pytest.mark.parametrize("kind", ["parquet", "npz"])
def test_other_kinds(kind, unlearned, tmp_path, monkeypatch, capsys):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(30, 64))
    y = (x[:, 0] > 0).astype(int)
    for name in ("train", "trusted"):
        if kind == "npz":
            np.savez(tmp_path / f"{name}.npz", X=x.reshape(30, 8, 8), y=y, more=np.arange(5))
            with zipfile.ZipFile(tmp_path / f"{name}.npz", "a") as archive:
                archive.writestr("file.npy", npy(np.arange(3)))  # a name that savez refuses
        else:
            columns = {f"c{j}": x[:, j] for j in range(64)} | {"y": y.astype(str)}
            pq.write_table(pa.table(columns), tmp_path / f"{name}.parquet")
    train, out = tmp_path / f"train.{kind}", tmp_path / f"out.{kind}"
    words = (train, "--trusted", tmp_path / f"trusted.{kind}", "-o", out, "--image")
    code, said = call(monkeypatch, capsys, *words, "--steps", 2, "--threshold", 0.9)
    assert code == 0, said
    if kind == "npz":
        with np.load(out, allow_pickle=False) as found:
            assert {*found.files} == {"X", "file", "more", "y", *table_file.ADDED}
            assert (found["X"] == x.reshape(30, 8, 8)).all() and found["weight"].shape == (30,)
            suspect = found["suspect"]
    else:
        found = pq.read_table(out)
        assert found.drop_columns([*table_file.ADDED]).equals(pq.read_table(train))
        suspect = found["suspect"].to_numpy()
    text = out.with_suffix(".html").read_text("utf-8")
    assert text.count("data:image/png") == suspect.sum()


def edited(change):
    """The good table, changed."""

    def make(path):
        body, head = rows(), ["a", "b", "word", "id", "y"]
        change(body, head)
        return write(path, body, head)

    return make


def raw(data):
    def make(path):
        path.write_bytes(data)
        return path

    return make


def put(i, j, text):
    return edited(lambda body, head: body[i].__setitem__(j, text))


BAD = {
    "empty": (raw(b""), "is empty"),
    "only a header": (raw(b"a,b,word,id,y\n"), "has no rows"),
    "not utf-8": (raw(b"a,y\n\xff,1\n"), r"not UTF-8 text \(byte 4\)"),
    "open quote": (raw(b'a,y\n"1,2\n'), "line 2, cannot be read as CSV"),
    "ragged": (edited(lambda body, head: body[4].pop()), "line 6, has 4 cells and the header 5"),
    "empty cell": (put(2, 0, ""), "line 4, column 'a', is empty"),
    "nan": (put(2, 0, "nan"), "line 4, column 'a', is empty.* pass --missing median"),
    "infinite": (put(0, 1, "-inf"), "line 2, column 'b', holds -inf"),
    "no label": (put(5, 4, " "), "line 7, column 'y', is empty"),
    "weight": (edited(lambda body, head: head.__setitem__(0, "weight")), "already has a column"),
    "twice": (edited(lambda body, head: head.__setitem__(0, "b")), "two columns named 'b'"),
    "no such column": (edited(lambda body, head: head.__setitem__(4, "z")), "no column 'y'"),
    "other columns": (edited(lambda body, head: head.__setitem__(0, "z")), "no column 'z', which"),
    "one label": (edited(lambda body, head: [r.__setitem__(4, "q") for r in body]), "'q'"),
    "more labels": (put(0, 4, "q"), "trusted.csv has no row with the label 'q'"),
}


@pytest.mark.parametrize("make, text", BAD.values(), ids=BAD)
def test_bad_files_get_a_sentence(make, text, files, tmp_path, monkeypatch, capsys):
    path, out = make(tmp_path / "bad.csv"), tmp_path / "out.csv"
    before = path.read_bytes()
    words = (path, "--trusted", files[1], "-o", out, "--ignore", "id")
    code, said = call(monkeypatch, capsys, *words)
    first, *others = said.splitlines()
    assert code == 1 and first.startswith("bilevax: "), said
    assert all(line.startswith("  ") for line in others), said  # one change may break two things
    assert re.search(text, said), said
    assert path.read_bytes() == before and not out.exists()


def test_an_npz_that_unpacks_to_far_more_than_its_size_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(table_file, "LEAST", 2**20)
    np.savez_compressed(tmp_path / "a.npz", X=np.zeros((2**10, 2**10)), y=np.zeros(2**10))
    with pytest.raises(ValueError, match="a.npz unpacks to more than 1,048,576 bytes"):
        prepare(*npz_files(tmp_path), "y")


def test_an_array_that_would_be_lost_is_refused(tmp_path):
    for name in ("a", "b"):
        np.savez(tmp_path / f"{name}.npz", X=np.ones((4, 2)), y=np.arange(4) % 2, weight=np.ones(2))
    with pytest.raises(ValueError, match="a.npz already has a column 'weight'; rename it"):
        prepare(*npz_files(tmp_path), "y")


def npz_files(folder):
    return folder / "a.npz", folder / "b.npz", folder / "o.npz", folder / "o.html"


def test_identifiers_are_refused(files, tmp_path):
    with pytest.raises(ValueError, match=r"column 'id', holds text .* pass --ignore id"):
        prepare(*files, tmp_path / "o.csv", tmp_path / "o.html", "y")


def test_a_slip_in_a_column_of_numbers_is_named(tmp_path):
    body = [[i / 7, i % 2] for i in range(300)]
    good = write(tmp_path / "good.csv", body, ["a", "y"])
    body[4][0] = "1.5O"
    bad = write(tmp_path / "bad.csv", body, ["a", "y"])
    said = r"line 6, column 'a', holds '1.5O' among numbers or dates.* or pass --ignore a"
    with pytest.raises(ValueError, match=said):
        prepare(bad, good, tmp_path / "o.csv", tmp_path / "o.html", "y")


HEAD = ["comma", "gap", "day", "word", "note", "y"]


def messy(n=60):
    """Decimal commas, empty numbers, dates, an empty word, a column to ignore."""
    word = lambda i: ["red", "", "blue"][i % 3]
    day = lambda i: f"2024-01-{i % 28 + 1:02d}"
    gap = lambda i: ["", "NA", "n/a", "7"][i] if i < 4 else str(i)
    return [[f"{i},5", gap(i), day(i), word(i), f"note {i}", i % 2] for i in range(n)]


def messy_files(folder):
    train, trusted = (write(folder / f"{name}.csv", messy(), HEAD) for name in ("a", "b"))
    return train, trusted, folder / "o.csv", folder / "o.html", "y"


def test_every_column_is_read_as_what_it_is(tmp_path):
    data = prepare(*messy_files(tmp_path), ["note"], missing="median").data
    assert data.columns == {
        "comma": "number with a decimal comma",
        "gap": "number; 6 empty cells filled with the median, 31",
        "day": "date, in days",
        "word": "one of 3 words",
        "note": "ignored",
    }
    assert data.x.shape == (60, 1 + 2 + 1 + 3) and not data.numeric
    assert data.x[2].tolist() == [2.5, 31, 1, 19725, 0, 1, 0]  # words: "", blue, red
    assert data.x[4].tolist() == [4.5, 4, 0, 19727, 1, 0, 0]


def test_blanks_around_names_words_and_labels_do_not_count(tmp_path):
    around = lambda i, word: [f" {word}", f"{word} ", word][i % 3]
    body = [[i, around(i, "ab"[i % 2]), around(i, ["no", "yes"][i % 2])] for i in range(40)]
    paths = [write(tmp_path / f"{k}.csv", body, ["n", " word", "y "]) for k in "ab"]
    data = prepare(*paths, tmp_path / "o.csv", tmp_path / "o.html", "y").data
    assert data.columns == {"n": "number", "word": "one of 2 words"}
    assert set(data.y) == set(data.y_trusted) == {"no", "yes"}


def test_the_cell_that_spoils_a_column_of_decimal_commas_is_named(tmp_path):
    body = [[f"{i},25", i % 2] for i in range(40)]
    body[3][0], body[7][0] = "-", "o.k."  # the first one is an empty number
    paths = [write(tmp_path / f"{k}.csv", body, ["a", "y"]) for k in "ab"]
    with pytest.raises(ValueError, match=r"line 9, column 'a', holds 'o\.k\.' among numbers"):
        prepare(*paths, tmp_path / "o.csv", tmp_path / "o.html", "y", missing="mean")


def test_all_columns_that_cannot_be_used_are_named_at_once(tmp_path):
    with pytest.raises(ValueError, match="found 2 problems") as caught:
        prepare(*messy_files(tmp_path))
    first, *rest = str(caught.value).split("\n")
    assert first.endswith("pass --ignore gap --ignore note.") and len(rest) == 2
    assert "line 2, column 'gap', is empty (or NA, -, ?), as are 6 cells" in rest[0]
    assert "column 'note', holds text ('note 0')" in rest[1]


def test_all_problems_of_both_files_are_named_at_once(tmp_path):
    """Nine runs, once."""
    body, trusted = messy(), messy()
    body[3][5] = body[9][5] = ""
    body[11].pop()
    body.insert(20, [])
    trusted[0][5], trusted[4][2] = "new", "31.12.2024"
    head = ["comma", "gap", "day", "weight", "comma", "y"]
    train = write(tmp_path / "a.csv", body, head)
    checked = write(tmp_path / "b.csv", trusted, [*HEAD[:3], "weight", "more", "y"])
    with pytest.raises(ValueError, match="found 8 problems.* pass --ignore gap --ignore day") as e:
        prepare(train, checked, tmp_path / "o.csv", tmp_path / "o.html", "y")
    said = [
        "a.csv has two columns named 'comma'; rename one.",
        "a.csv, line 13, has 5 cells and the header 6 (such lines: 2)",
        "a.csv already has a column 'weight'; rename it.",
        "b.csv has a column 'more', which",
        "a.csv, line 5, column 'y', is empty (such rows: 2); fill it or leave the row out.",
        "a.csv, line 2, column 'gap', is empty (or NA, -, ?), as are 6 cells",
        "b.csv, line 6, column 'day', holds '31.12.2024' among numbers or dates",
    ]
    text = str(e.value)
    assert [s for s in said if s not in text] == [] and [text.index(s) for s in said] == sorted(
        text.index(s) for s in said
    ), text


@pytest.mark.parametrize("cell", ["1,234", "12%", "1 000", "31.12.2020", "12/31/2020", "1.5O"])
def test_what_may_be_a_number_never_becomes_a_word(cell, tmp_path):
    body = [[cell if i == 5 or cell != "1.5O" else i, i % 2] for i in range(40)]
    paths = [write(tmp_path / f"{name}.csv", body, ["a", "y"]) for name in ("a", "b")]
    with pytest.raises(ValueError, match=f"holds '{cell}' among numbers or dates"):
        prepare(*paths, tmp_path / "o.csv", tmp_path / "o.html", "y")


def test_missing_must_be_known(tmp_path):
    with pytest.raises(ValueError, match="--missing must be mean or median, got 'zero'"):
        prepare(*messy_files(tmp_path), missing="zero")


class Counted(str):
    """A name that counts how often it is compared."""

    compared = 0
    __hash__ = str.__hash__

    def __eq__(self, other):
        Counted.compared += 1
        return str.__eq__(self, other)


def test_columns_are_told_apart_without_comparing_each_with_each():
    names = [Counted(f"c{j}") for j in range(1000)]
    require_distinct(Path("t.csv"), names)
    assert Counted.compared < 5000
    with pytest.raises(ValueError, match="t.csv has two columns named 'c3'"):
        require_distinct(Path("t.csv"), [*names, "c3"])


def test_trusted_labels_must_be_known(files, tmp_path):
    body = rows()
    body[3][4] = "new"
    trusted = write(tmp_path / "t.csv", body)
    with pytest.raises(ValueError, match="t.csv, line 5, has the label 'new', which"):
        prepare(files[0], trusted, tmp_path / "o.csv", tmp_path / "o.html", "y", ["id"])


@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    cut=st.lists(st.tuples(st.integers(0, 2000), st.integers(0, 8)), max_size=3),
    put=st.lists(st.tuples(st.integers(0, 2000), st.binary(max_size=4)), max_size=3),
    piece=st.sampled_from([b"", b"\x00", b'"', b",", b"\r", b"\n\n", b";", b"\xef\xbb\xbf", b"\t"]),
)
def test_a_damaged_table_is_read_or_refused(files, tmp_path, cut, put, piece):
    data = files[0].read_bytes()
    for at, n in cut:
        data = data[:at] + data[at + n :]
    for at, more in put:
        data = data[:at] + more + piece + data[at:]
    path = tmp_path / "damaged.csv"
    path.write_bytes(data)
    try:
        job = prepare(path, files[1], tmp_path / "o.csv", tmp_path / "o.html", "y", ["id"])
        assert np.isfinite(job.data.x).all() and len(job.data.y) == len(job.table)
    except ValueError as error:
        assert str(error).endswith(".")
    assert path.read_bytes() == data and not (tmp_path / "o.csv").exists()


@given(text=st.text(max_size=80))
@settings(max_examples=25, deadline=None)
def test_no_text_becomes_markup(text):
    pair, rest = [(text, text, 1)], (0.15, text)
    summary = Summary(text, text, 3, 2, 1, [(text, 3, 1)], {text: text}, 0, pair, *rest)
    finding = Finding(text, text, text, 0.9, 0.1, 0.1, [(text, text)], None)
    plain = Finding("r", "r", "r", 0.9, 0.1, 0.1, [("r", "r")], None)
    pair, rest = [("r", "r", 1)], (0.15, "r")
    quiet = Summary("r", "r", 3, 2, 1, [("r", 3, 1)], {"r": "r"}, 0, pair, *rest)
    tags = lambda html: (html.count("<"), html.count('"'))
    assert tags(page(summary, [finding])) == tags(page(quiet, [plain]))


@pytest.mark.slow
def test_killed_and_resumed(files, tmp_path, monkeypatch, capsys):
    out, folder = tmp_path / "out.csv", tmp_path / "out.csv.checkpoint"
    words = [files[0], "--trusted", files[1], "-o", out, "--ignore", "id", "--steps", 300]
    code = "from bilevax.cli import main; main()"
    source = str(Path(bx.__file__).parents[1])
    process = subprocess.Popen(
        [sys.executable, "-c", code, "clean", *map(str, words)],
        env=os.environ | {"PYTHONPATH": source, "JAX_ENABLE_X64": "1"},
    )
    while process.poll() is None and not any(folder.glob("bilevax-*.npz")):
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert folder.exists() and not out.exists()
    code, said = call(monkeypatch, capsys, *words)
    assert code == 1 and "give --resume to continue it" in said
    code, said = call(monkeypatch, capsys, *words, "--resume")
    assert code == 0 and out.exists() and not folder.exists(), said


def test_a_table_with_tabs_may_say_so_in_its_name(tmp_path):
    path = tmp_path / "a.tsv"
    path.write_text("x\ty\n1,5\tno\n", "utf-8")
    table = table_file.read(path)
    assert list(table.columns["x"]) == ["1,5"] and list(table.columns["y"]) == ["no"]
