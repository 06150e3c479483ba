"""Data sets: where they are found, how they are fetched, and what is refused."""

import ast
import dataclasses
import gzip
import hashlib
import http.server
import io
import pathlib
import pickle
import stat
import struct
import sys
import tarfile
import threading
import tracemalloc
import zipfile
import zlib

import numpy as np
import pytest
import requests
from PIL import Image
from typer.testing import CliRunner

from bilevax import data
from bilevax.cli._app import app
from bilevax.data import DataError, File, _bounded, _download, _idx, _places

SOURCE = pathlib.Path(data.__file__).parent


BESIDE, SEND = _places.beside_checkout, requests.Session.send
REAL = list(_places.places())[:-1]
"""Where the real files may be; what is in the user's cache is left alone."""


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """No place but an empty cache, and no network."""
    monkeypatch.delenv("BILEVAX_DATA", raising=False)
    monkeypatch.setattr(_places, "beside_checkout", lambda: None)
    monkeypatch.setattr(_places, "cache", lambda: tmp_path / "cache")
    monkeypatch.setattr(requests.Session, "send", local_only)
    return tmp_path / "cache"


def local_only(self, request, **settings):
    if not request.url.startswith("http://127.0.0.1:"):
        raise requests.ConnectionError("no network in tests")
    return SEND(self, request, **settings)


# Synthetic files


def idx(array, magic=None, shape=None):
    magic = bytes([0, 0, 8, array.ndim]) if magic is None else magic
    return magic + struct.pack(f">{array.ndim}I", *(shape or array.shape)) + array.tobytes()


def write(path, content):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def idx_set(folder, label=7):
    for name, shape in _idx.SHAPES.items():
        array = np.full(shape, label if len(shape) == 1 else 0, np.uint8)
        write(folder / name, gzip.compress(idx(array), 1))
    return folder


def npz(path, **arrays):
    path.parent.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(path, **arrays)
    return path


def subset(letter, x, classes=10):
    y = np.arange(len(x)) % classes
    return {f"{letter}_train": x, "y_train": y, f"{letter}_test": x, "y_test": y}


def tar(path, *members):
    """Members are (name, content), or (TarInfo, content)."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w:gz", compresslevel=1) as archive:
        for name, content in members:
            info = name if isinstance(name, tarfile.TarInfo) else tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return path


def png(value=255, size=(105, 105)):
    out = io.BytesIO()
    Image.new("L", size, value).convert("1").save(out, "PNG")
    return out.getvalue()


def zipped(path, entries):
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in entries:
            archive.writestr(name, content)
    return path


@pytest.fixture
def small_omniglot(monkeypatch, tmp_path):
    """Omniglot of three characters by two drawers; the last is of the evaluation set."""
    for name, value in (("CHARACTERS", 3), ("DRAWERS", 2), ("BACKGROUND", 2)):
        monkeypatch.setattr(data.omniglot, name, value)
    folder = tmp_path / "place" / "omniglot"
    first = "images_background/A/character0{0}/000{0}_0{1}.png".format
    entries = [(first(i, j), png(0 if i == 1 else 255)) for i in (1, 2) for j in (1, 2)]
    zipped(folder / "images_background.zip", entries)
    last = [(f"images_evaluation/B/character01/0003_0{j}.png", png(0)) for j in (1, 2)]
    zipped(folder / "images_evaluation.zip", [("images_evaluation/", b""), *last])
    return tmp_path / "place"


# Formats


def test_idx_reads_what_was_written(tmp_path):
    array = np.arange(24, dtype=np.uint8).reshape(2, 3, 4)
    path = write(tmp_path / "a.gz", gzip.compress(idx(array)))
    np.testing.assert_array_equal(_idx.read(path, (2, 3, 4)), array)


ARRAY = np.arange(24, dtype=np.uint8).reshape(2, 3, 4)
BAD_IDX = {
    "less than": gzip.compress(idx(ARRAY)[:-1]),
    "more than": gzip.compress(idx(ARRAY) + b"0"),
    "is not an idx file": gzip.compress(idx(ARRAY, magic=b"\0\0\x0d\x03")),
    "has not the shape": gzip.compress(idx(ARRAY, shape=(2, 3, 2**31))),
    r"is damaged \(Compressed file ended": gzip.compress(idx(ARRAY))[:-12],
    r"is damaged \(Not a gzipped": idx(ARRAY),
    r"is damaged \(Error -3": gzip.compress(idx(ARRAY))[:10] + b"\xff" * 30,
}


@pytest.mark.parametrize("why", BAD_IDX)
def test_idx_refuses(tmp_path, why):
    path = write(tmp_path / "a.gz", BAD_IDX[why])
    with pytest.raises(DataError, match=f"a.gz.*{why}.*get it again") as caught:
        _idx.read(path, (2, 3, 4))
    assert "\n" not in str(caught.value)


def test_a_gzip_bomb_is_not_unpacked(tmp_path):
    """A file of 100 kB that unpacks to 100 MB costs what was asked for, not what it holds."""
    path = write(tmp_path / "a.gz", gzip.compress(idx(ARRAY) + bytes(100_000_000), 1))
    tracemalloc.start()
    with pytest.raises(DataError, match="more than 24 values"):
        _idx.read(path, (2, 3, 4))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 2_000_000


@pytest.mark.parametrize("module", [data.mnist, data.fashion_mnist])
def test_mnist_and_its_kin(tmp_path, module):
    idx_set(tmp_path / module.DATASET.name)
    split = module.load(tmp_path)
    assert split.x_train.shape == (60_000, 28, 28) and split.x_test.shape == (10_000, 28, 28)
    assert split.x_train.dtype == np.uint8 and split.y_train.dtype == np.int32
    assert split.names[split.y_test[0]] in ("7", "Sneaker") and "60,000" in split.source


def test_labels_beyond_the_classes_are_refused(tmp_path):
    idx_set(tmp_path / "mnist", label=10)
    with pytest.raises(DataError, match="the label 10 among 10 classes"):
        data.mnist.load(tmp_path)


def records(n, labels, label):
    """n records with these label bytes; red is 1, green 2, blue 3."""
    one = bytes(label) + b"\1" * 1024 + b"\2" * 1024 + b"\3" * 1024
    assert len(label) == labels
    return one * n


def cifar_form(labels):
    train, test = {"d/a": 2, "d/b": 1}, {"d/t": 1}
    return data._cifar.archive("a.tar.gz", "CIFAR,", train, test, labels, "xyz")


@pytest.mark.parametrize("labels", [1, 2])
def test_cifar_binary(tmp_path, labels):
    coarse = [9] * (labels - 1)
    members = [("./d/a", 2, 0), ("d/b", 1, 1), ("d/t", 1, 2)]
    files = [(name, records(n, labels, [*coarse, y])) for name, n, y in members]
    path = tar(tmp_path / "a.tar.gz", ("d/readme.html", b"hello"), *files)
    split = cifar_form(labels).read([path])
    assert split.x_train.shape == (3, 32, 32, 3) and split.x_train.flags.c_contiguous
    assert split.x_train[0, 5, 7].tolist() == [1, 2, 3]
    assert split.y_train.tolist() == [0, 0, 1] and split.y_test.tolist() == [2]
    assert split.source == "CIFAR, all images: 3 train and 1 test"


def link(kind, target="/etc/passwd"):
    info = tarfile.TarInfo("d/a")
    info.type, info.linkname = kind, target
    return info, b""


GOOD = [("d/a", records(2, 1, [0])), ("d/b", records(1, 1, [0])), ("d/t", records(1, 1, [0]))]
BAD_TAR = {
    "leads out of it": [*GOOD, ("../../evil", b"x")],
    "'/evil', which leads out of it": [*GOOD, ("/evil", b"x")],
    "entry d/a, which is no plain file": [link(tarfile.SYMTYPE), *GOOD],
    "entry d/a, which is no plain": [link(tarfile.LNKTYPE, "d/b"), *GOOD],
    "d/a, which is no": [link(tarfile.CHRTYPE), *GOOD],
    "has 0 bytes of d/t, not 3,073": GOOD[:2],
    "has 3,073 bytes of d/a, not 6,146": [("d/a", GOOD[1][1]), *GOOD[1:]],
    "unpacks to more than": [("d/big", bytes(10_000_000)), *GOOD],
    "labels up to 3 among 3 classes": [*GOOD[:2], ("d/t", records(1, 1, [3]))],
}


@pytest.mark.parametrize("why", BAD_TAR)
def test_cifar_binary_refuses(tmp_path, why):
    path = tar(tmp_path / "a.tar.gz", *BAD_TAR[why])
    with pytest.raises(DataError, match=why):
        cifar_form(1).read([path])
    assert [p.name for p in tmp_path.iterdir()] == ["a.tar.gz"], "nothing is unpacked to disk"


def test_a_truncated_tar_is_damaged(tmp_path):
    path = tar(tmp_path / "a.tar.gz", *GOOD)
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(DataError, match="is damaged"):
        cifar_form(1).read([path])


def test_a_tar_header_cannot_take_the_memory(tmp_path):
    """A long-name entry is read by tarfile itself: it is counted too."""
    info = tarfile.TarInfo("././@LongLink")
    info.type = tarfile.GNUTYPE_LONGNAME
    path = tar(tmp_path / "a.tar.gz", (info, bytes(50_000_000)))
    with pytest.raises(DataError, match="unpacks to more than"):
        cifar_form(1).read([path])


def test_cifar_subset_and_features(tmp_path):
    pixels = np.zeros((20, 32, 32, 3), np.uint8)
    npz(tmp_path / "cifar10/cifar10_subset.npz", **subset("x", pixels))
    effnet = tmp_path / "cifar10/cifar10_subset_effnetlite0_features.npz"
    npz(effnet, **subset("f", np.ones((20, 4), np.float16)))
    split = data.cifar10.load(tmp_path)
    assert split.source == "CIFAR-10, a balanced subset: 2 train and 2 test images a class"
    split = data.cifar10.features(tmp_path)
    assert split.x_train.dtype == np.float32 and split.y_train.dtype == np.int32
    assert split.source == (
        "EfficientNet-Lite0 features of a balanced subset: 2 train and 2 test images a class"
    )
    resnet = subset("f", np.ones((13, 512), np.float32))
    npz(tmp_path / "cifar10/cifar10_resnet18_features.npz", **resnet)
    split = data.cifar10.features(tmp_path)
    assert split.source == "ResNet-18 features of a subset: 13 train and 13 test images"


def test_cifar_in_one_part_is_divided_by_class(tmp_path):
    y = np.array([0] * 5 + [1] * 10)
    f = np.arange(15, dtype=np.float32)[:, None]
    npz(tmp_path / "cifar100/cifar100_resnet18_features.npz", f=f, y=y)
    split = data.cifar100.features(tmp_path)
    assert split.x_train[:, 0].tolist() == [0, 1, 2, 3, *range(5, 13)]
    assert split.x_test[:, 0].tolist() == [4, 13, 14] and split.y_test.tolist() == [0, 1, 1]
    assert "divided here" in split.source


class Evil:
    def __reduce__(self):
        return pathlib.Path("pickle-was-run").touch, ()


PIXELS = np.zeros((3, 32, 32, 3), np.uint8)
BAD_NPZ = {
    "has pickled objects in x_train.npy": subset("x", np.array([Evil()], object)),
    "has no array y_test": {k: v for k, v in subset("x", PIXELS).items() if k != "y_test"},
    "has no array x": {"z": PIXELS},
    "has images float64": subset("x", PIXELS.astype(float)),
    r"has images uint8\(3, 28, 28\)": subset("x", PIXELS[:, :28, :28, 0]),
    "labels int64.* for 3 images": subset("x", PIXELS) | {"y_train": np.zeros(4, int)},
    "labels float64": subset("x", PIXELS) | {"y_train": np.zeros(3)},
    "labels up to 10 among 10": subset("x", PIXELS) | {"y_test": np.full(3, 10)},
    "labels uint8.* for 0 images": subset("x", PIXELS[:0]) | {"y_train": np.zeros(0, np.uint8)},
}


@pytest.mark.parametrize("why", BAD_NPZ)
def test_npz_refuses(tmp_path, why, monkeypatch):
    monkeypatch.chdir(tmp_path)
    npz(tmp_path / "cifar10/cifar10_subset.npz", **BAD_NPZ[why])
    with pytest.raises(DataError, match=why):
        data.cifar10.load(tmp_path)
    assert not pathlib.Path("pickle-was-run").exists()


def header(shape):
    out = io.BytesIO()
    described = {"descr": "|u1", "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(out, described)
    return out.getvalue()


RAW_NPZ = {
    "do not fit its header": [("x.npy", header((2**50,)) + b"0")],
    "do not fit its  *header": [("x.npy", header((-1, -1)) + b"0")],
    "has no plain array in x.npy": [("x.npy", pickle.dumps([1, 2, 3]))],
    "leads out of it": [("../x.npy", header((1,)) + b"0")],
    "unpacks to more than 1,000,000": [("x.npy", header((2_000_000,)) + bytes(2_000_000))],
}


@pytest.mark.parametrize("why", RAW_NPZ)
def test_raw_npz_refuses(tmp_path, why):
    path = zipped(tmp_path / "a.npz", RAW_NPZ[why])
    with pytest.raises(DataError, match=why):
        _bounded.npz_arrays(path, limit=1_000_000)


@pytest.mark.parametrize("content", [b"", b"no zip", pickle.dumps({"x": 1})])
def test_what_is_no_npz_is_refused(tmp_path, content):
    with pytest.raises(DataError, match="is damaged"):
        _bounded.npz_arrays(write(tmp_path / "a.npz", content))


def test_features_must_be_finite(tmp_path):
    nan = subset("f", np.full((3, 2), np.nan, np.float32))
    npz(tmp_path / "cifar10/cifar10_resnet18_features.npz", **nan)
    with pytest.raises(DataError, match="not a table of finite floats"):
        data.cifar10.features(tmp_path)


def test_omniglot(small_omniglot, cache):
    glyphs = data.omniglot.load(small_omniglot, size=14)
    assert glyphs.images.shape == (3, 2, 14, 14) and glyphs.images.dtype == np.uint8
    assert glyphs.images[:, :, 3, 3].tolist() == [[255, 255], [0, 0], [255, 255]]
    assert glyphs.alphabets == ("A", "A", "B")
    assert glyphs.characters == ("character01", "character02", "character01")


def test_omniglot_is_decoded_once_for_the_same_zips(small_omniglot, cache, monkeypatch):
    first = data.omniglot.load(small_omniglot)
    (kept,) = (cache / "omniglot").iterdir()
    decode = data.omniglot.decode
    monkeypatch.setattr(data.omniglot, "decode", None)
    again = data.omniglot.load(small_omniglot)
    np.testing.assert_array_equal(first.images, again.images)
    assert (first.alphabets, first.source) == (again.alphabets, again.source)
    monkeypatch.setattr(data.omniglot, "decode", decode)
    kept.write_bytes(kept.read_bytes()[:-40])
    data.omniglot.load(small_omniglot)  # damaged, so made anew
    assert [p.name for p in kept.parent.iterdir()] == [kept.name]
    last = [(f"images_evaluation/C/character01/0003_0{j}.png", png(0)) for j in (1, 2)]
    zipped(small_omniglot / "omniglot/images_evaluation.zip", last)
    assert data.omniglot.load(small_omniglot).alphabets[2] == "C"


def test_omniglot_without_a_writable_cache(small_omniglot, cache):
    write(cache, b"a file where a folder should be")
    with pytest.warns(UserWarning, match="not kept"):
        assert data.omniglot.load(small_omniglot).images.shape == (3, 2, 28, 28)


def symlink():
    info = zipfile.ZipInfo("images_evaluation/B/character01/0003_01.png")
    info.external_attr = (stat.S_IFLNK | 0o777) << 16
    return info


LAST = "images_evaluation/B/character01/0003_0{}.png".format
BAD_ZIP = {
    "leads out of it": [("../0003_01.png", b"")],
    "which leads out": [("C:\\0003_01.png", b"")],
    "is no plain file": [(symlink(), b"/etc/passwd")],
    "has no drawing 2 of character 3": [(LAST(1), png())],
    "no number of Omniglot's": [(LAST(9), png())],
    "or a repeat": [("images_background/A/character01/0001_01.png", png())],
    r"of \(50000, 2\) pixels": [(LAST(1), png(size=(50_000, 2)))],
    "which is no image": [(LAST(1), b"GIF89a")],
    "no image": [(LAST(1), png()[:-40])],
    "unpacks to more than": [(LAST(1), bytes(70_000_000))],
}


@pytest.mark.parametrize("why", BAD_ZIP)
def test_omniglot_refuses(small_omniglot, why):
    zipped(small_omniglot / "omniglot/images_evaluation.zip", BAD_ZIP[why])
    with pytest.raises(DataError, match=why):
        data.omniglot.load(small_omniglot)


def test_omniglot_size():
    with pytest.raises(DataError, match="size = 200"):
        data.omniglot.load(size=200)


def test_digits():
    split = data.digits.load()
    assert split.x_train.shape == (1437, 8, 8) and split.x_test.shape == (360, 8, 8)
    assert split.x_train.max() == 16 and set(split.y_test.tolist()) == set(range(10))


# Places


def test_the_first_place_wins(tmp_path, cache, monkeypatch):
    features = "cifar10/cifar10_resnet18_features.npz"
    order = ["data_dir", "variable", "beside", "cache"]
    for n, place in enumerate(order):
        npz(tmp_path / place / features, **subset("f", np.full((10, 1), n, np.float32)))
    monkeypatch.setenv("BILEVAX_DATA", str(tmp_path / "variable"))
    monkeypatch.setattr(_places, "beside_checkout", lambda: tmp_path / "beside")
    assert data.cifar10.features(tmp_path / "data_dir").x_test[0, 0] == 0
    for n, place in enumerate(order[1:], 1):
        assert data.cifar10.features().x_test[0, 0] == n
        (tmp_path / place / features).unlink()
    with pytest.raises(DataError, match="cifar10_resnet18_features.npz or cifar10/cifar10_subset"):
        data.cifar10.features()


def test_the_official_archive_comes_before_a_subset(tmp_path):
    npz(tmp_path / "cifar10/cifar10_subset.npz", **subset("x", PIXELS))
    assert data.find(data.cifar10.DATASET, tmp_path).form is data.cifar10.DATASET.forms[1]
    write(tmp_path / "cifar10/cifar-10-binary.tar.gz", b"")
    assert data.find(data.cifar10.DATASET, tmp_path).form is data.cifar10.DATASET.forms[0]


def test_a_place_with_some_of_the_files_is_passed_over(tmp_path):
    idx_set(tmp_path / "mnist")
    assert data.find(data.mnist.DATASET, tmp_path)
    (tmp_path / "mnist/t10k-labels-idx1-ubyte.gz").unlink()
    assert data.find(data.mnist.DATASET, tmp_path) is None


def test_beside_a_checkout_only(monkeypatch, tmp_path):
    module = tmp_path / "checkout/src/bilevax/data/_places.py"
    shared = tmp_path / "shared" / "data"
    shared.mkdir(parents=True)
    monkeypatch.setattr(_places, "__file__", str(module))
    assert BESIDE() is None
    write(tmp_path / "checkout/pyproject.toml", b"")
    assert BESIDE() == shared.resolve()


def test_a_place_that_is_no_folder(tmp_path, monkeypatch):
    with pytest.raises(DataError, match="data_dir = .*nowhere is not a folder"):
        data.mnist.load(tmp_path / "nowhere")
    monkeypatch.setenv("BILEVAX_DATA", str(tmp_path / "nowhere"))
    with pytest.raises(DataError, match="BILEVAX_DATA = .*nowhere is not a folder"):
        data.mnist.load()


@pytest.mark.parametrize("name", [n for n, d in data.DATASETS.items() if d.files])
def test_a_missing_set_says_three_ways_in_one_sentence(name, cache):
    with pytest.raises(DataError) as caught:
        getattr(data, name).load()
    words, dataset = str(caught.value), data.DATASETS[name]
    assert f"{name} is not in {cache} and could not be fetched (ConnectionError" in words
    assert "data_dir" in words and "BILEVAX_DATA" in words
    assert all(file.name in words for file in dataset.files)
    assert dataset.files[0].url.rsplit("/", 1)[0] in words and str(cache / name) in words
    assert f"bilevax data fetch {name}" in words
    assert words.count(". ") == 0 and words.endswith(".") and "\n" not in words


# Fetching


BODY = bytes(range(256)) * 2000
SHA256 = hashlib.sha256(BODY).hexdigest()


class Server(http.server.ThreadingHTTPServer):
    """Serves `body`; breaks off the first `drops` answers half way."""

    daemon_threads = True
    body, drops, ranges = BODY, 0, True

    def handle_error(self, request, client_address):
        pass


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        server, asked = self.server, self.headers.get("Range")
        server.asked.append(asked)
        start = int(asked.removeprefix("bytes=").rstrip("-")) if asked and server.ranges else 0
        if start and start >= len(server.body):
            self.send_error(416)
            return
        rest = server.body[start:]
        self.send_response(206 if start else 200)
        if start:
            end = len(server.body)
            self.send_header("Content-Range", f"bytes {start}-{end - 1}/{end}")
        self.send_header("Content-Length", str(len(rest)))
        self.end_headers()
        if server.drops:
            server.drops -= 1
            rest = rest[: len(rest) // 2]
        self.wfile.write(rest)

    def log_message(self, *args):
        pass


@pytest.fixture
def server():
    server = Server(("127.0.0.1", 0), Handler)
    server.asked = []
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def file_at(server, sha256=SHA256, size=len(BODY)):
    return File("a.bin", f"http://127.0.0.1:{server.server_port}/a.bin", sha256, size)


def test_fetch(server, tmp_path):
    path = _download.fetch(file_at(server), tmp_path / "new")
    assert path.read_bytes() == BODY and [p.name for p in path.parent.iterdir()] == ["a.bin"]
    _download.fetch(file_at(server), tmp_path / "new")
    assert server.asked == [None], "what is there is not fetched again"


def test_a_broken_transfer_goes_on(server, tmp_path):
    server.drops = 2
    path = _download.fetch(file_at(server), tmp_path)
    assert path.read_bytes() == BODY and [p.name for p in tmp_path.iterdir()] == ["a.bin"]
    half = len(BODY) // 2
    assert server.asked == [None, f"bytes={half}-", f"bytes={half + half // 2}-"]


def test_a_killed_fetch_goes_on(server, tmp_path):
    write(tmp_path / "a.bin.part", BODY[:1000])
    assert _download.fetch(file_at(server), tmp_path).read_bytes() == BODY
    assert server.asked == ["bytes=1000-"]


def test_a_server_without_ranges_begins_again(server, tmp_path):
    server.ranges = False
    write(tmp_path / "a.bin.part", b"x" * 1000)
    assert _download.fetch(file_at(server), tmp_path).read_bytes() == BODY
    assert server.asked == ["bytes=1000-"]


@pytest.mark.parametrize("left", [b"x" * 1000, b"x" * len(BODY)])
def test_a_part_of_another_file_is_thrown_away(server, tmp_path, left):
    write(tmp_path / "a.bin.part", left)
    assert _download.fetch(file_at(server), tmp_path).read_bytes() == BODY
    assert server.asked[-1] is None


def test_wrong_bytes_do_not_arrive(server, tmp_path):
    server.body = b"x" * len(BODY)
    with pytest.raises(DataError, match="not kept") as caught:
        _download.fetch(file_at(server), tmp_path)
    assert SHA256 in str(caught.value)
    assert hashlib.sha256(server.body).hexdigest() in str(caught.value)
    assert not list(tmp_path.iterdir())


def test_more_bytes_than_the_file_has_are_not_taken(server, tmp_path):
    with pytest.raises(DataError, match="sends more than the 1,000 bytes of a.bin"):
        _download.fetch(file_at(server, size=1000), tmp_path)
    assert not list(tmp_path.iterdir())


def test_fewer_bytes_than_the_file_has(server, tmp_path):
    with pytest.raises(OSError, match="no more than the 512,000 bytes"):
        _download.fetch(file_at(server, size=len(BODY) + 1), tmp_path)
    assert not list(tmp_path.iterdir())


def test_no_connection_keeps_the_part(tmp_path):
    write(tmp_path / "a.bin.part", BODY[:1000])
    file = File("a.bin", "https://example.invalid/a.bin", SHA256, len(BODY))
    with pytest.raises(OSError, match="ConnectionError at https://example.invalid/a.bin"):
        _download.fetch(file, tmp_path)
    assert (tmp_path / "a.bin.part").stat().st_size == 1000


def test_other_bytes_of_the_user_are_not_overwritten(server, tmp_path):
    write(tmp_path / "a.bin", b"mine")
    with pytest.raises(DataError, match="other bytes.*move it away"):
        _download.fetch(file_at(server), tmp_path)
    assert (tmp_path / "a.bin").read_bytes() == b"mine" and not server.asked


def test_load_fetches_into_the_cache(server, tmp_path, cache, monkeypatch):
    server.body = gzip.compress(b"")
    sha256, size = hashlib.sha256(server.body).hexdigest(), len(server.body)
    file = dataclasses.replace(file_at(server, sha256, size), name="images_background.zip")
    form = data.Form((file.name,), lambda paths: paths[0].read_bytes())
    dataset = dataclasses.replace(data.mnist.DATASET, files=(file,), forms=(form,))
    assert _download.obtain(dataset).read() == server.body
    assert (cache / "mnist" / file.name).is_file()


# The registry, and the command line


def test_registry():
    for name, dataset in data.DATASETS.items():
        assert name == dataset.name and dataset.citation and dataset.licence
        assert dataset.forms[0].files == tuple(file.name for file in dataset.files)
        assert all(len(file.sha256) == 64 and file.size for file in dataset.files)
        assert "pickle" not in dataset.description


def run(*arguments):
    return CliRunner().invoke(app, ["data", *map(str, arguments)], env={"COLUMNS": "200"})


def test_list(tmp_path):
    idx_set(tmp_path / "mnist")
    result = run("list", "--data-dir", tmp_path)
    assert result.exit_code == 0
    rows = [line.split() for line in result.output.splitlines() if line.startswith("│")]
    lines = {row[1]: " ".join(row) for row in rows if row[1] != "│"}
    assert set(lines) == set(data.DATASETS)
    assert "not found" not in lines["mnist"] and "not found" in lines["omniglot"]
    assert "scikit-learn" in lines["digits"] and "170 MB" in lines["cifar10"]


def test_check(tmp_path):
    idx_set(tmp_path / "mnist")
    result = run("check", "--data-dir", tmp_path)
    assert result.exit_code == 0
    assert "ok: MNIST, all images" in result.output and "other bytes" in result.output
    assert "omniglot: not found" in result.output and "digits: ok" in result.output
    assert run("check", "omniglot", "--data-dir", tmp_path).exit_code == 1
    write(tmp_path / "mnist/t10k-labels-idx1-ubyte.gz", b"")
    result = run("check", "mnist", "--data-dir", tmp_path)
    assert result.exit_code == 1 and "NOT OK" in result.output


def test_check_of_the_cache_wants_the_official_bytes(cache):
    idx_set(cache / "mnist")
    result = run("check", "mnist")
    assert result.exit_code == 1 and "other bytes than the official file" in result.output


def test_fetch_command(tmp_path, cache, server, monkeypatch):
    dataset = dataclasses.replace(
        data.mnist.DATASET, files=(file_at(server),), forms=(data.Form(("a.bin",), list),)
    )
    monkeypatch.setitem(data.DATASETS, "mnist", dataset)
    assert f"fetched to {cache}" in run("fetch", "mnist", "digits").output
    assert f"found in {cache}" in run("fetch", "mnist").output
    run("fetch", "mnist", "--data-dir", tmp_path / "here")
    assert (tmp_path / "here/mnist/a.bin").read_bytes() == BODY
    result = run("fetch", "omniglot")
    assert result.exit_code == 1 and isinstance(result.exception, DataError)


def test_unknown_name():
    for command in ("fetch", "check"):
        error = run(command, "imagenet").exception
        assert isinstance(error, DataError) and "give one of mnist" in str(error)


def test_no_jax_and_nothing_heavy_at_import():
    """The layer imports no jax; at its top level, the standard library and itself alone."""
    for path in SOURCE.glob("*.py"):
        tree = ast.parse(path.read_text())
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                tops = {alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                assert node.level < 2, "nothing of bilevax from outside the layer"
                tops = {(node.module or "").split(".")[0]} if not node.level else set()
            else:
                continue
            assert not tops & {"jax", "jaxlib", "equinox", "bilevax", "pickle"}, path
            assert node not in tree.body or tops <= set(sys.stdlib_module_names), (path, tops)


# The real files, where they are


def place_of(dataset, forms):
    for place in REAL:
        for form in forms:
            if all((place / dataset.name / file).is_file() for file in form.files):
                return place
    pytest.skip(f"{dataset.name} is neither in BILEVAX_DATA nor in ../shared/data")


@pytest.mark.parametrize("module", [data.mnist, data.fashion_mnist])
def test_the_real_mnist(module):
    place = place_of(module.DATASET, module.DATASET.forms)
    assert [c.fits for c in data.check(module.DATASET, place)] == [True]
    split = module.load(place)
    counts = np.bincount(split.y_train)
    assert len(counts) == 10 and counts.sum() == 60_000 and 20 < split.x_train.mean() < 90


@pytest.mark.parametrize("module", [data.cifar10, data.cifar100])
def test_the_real_cifar(module):
    split = module.load(place_of(module.DATASET, module.DATASET.forms))
    assert set(np.unique(split.y_train)) == set(range(len(module.NAMES)))
    assert 100 < split.x_train.mean() < 140 and split.source.startswith("CIFAR-10")
    features = module.features(place_of(module.DATASET, module.DATASET.features))
    assert features.x_train.shape[1] in (512, 1280) and "features of" in features.source
    # features that are worth something: the nearest mean of a class is often the right one
    x, y = features.x_train, features.y_train
    means = np.stack([x[y == label].mean(0) for label in range(len(module.NAMES))])
    distance = (means**2).sum(1) - 2 * features.x_test @ means.T
    assert (distance.argmin(1) == features.y_test).mean() > 0.4


def test_the_real_omniglot(monkeypatch):
    """All names; the pixels of every fortieth drawing, since all take long to decode."""
    module, real = data.omniglot, data.omniglot._image
    place = place_of(module.DATASET, module.DATASET.forms)
    some = lambda *x: real(*x) if zlib.crc32(x[2]) % 40 == 0 else np.uint8(0)
    monkeypatch.setattr(module, "_image", some)
    glyphs = module.load(place)
    assert glyphs.images.shape == (1623, 20, 28, 28)
    assert len(set(glyphs.alphabets[: module.BACKGROUND])) == 30
    assert len(set(glyphs.alphabets)) == 50
    drawn = glyphs.images[glyphs.images.any((2, 3))]
    assert len(drawn) > 300 and 0.04 < drawn.mean() / 255 < 0.12
