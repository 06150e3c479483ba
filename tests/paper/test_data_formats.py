"""Formats of data sets: what is written is read, and what is damaged or hostile is refused."""

import gzip
import io
import pathlib
import pickle
import stat
import tarfile
import tracemalloc
import zipfile

import numpy as np
import pytest
from data_files import alone, idx, idx_set, npz, png, subset, tar, write, zipped

from bilevax._files import npz_arrays
from bilevax.paper import data
from bilevax.paper.data import DataError, _idx
from bilevax.paper.data._tar import tar_members


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    return alone(tmp_path, monkeypatch)


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
    return data._cifar.archive("a.tar.gz", "CIFAR", train, test, labels, "xyz")


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
    "labels 3 to 3 among 3 classes": [*GOOD[:2], ("d/t", records(1, 1, [3]))],
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


def test_cifar_in_files_of_any_name(tmp_path):
    """They are told apart by their arrays; of several that fit, the first by name is taken."""
    npz(tmp_path / "cifar10/a.npz", **subset("x", np.zeros((20, 32, 32, 3), np.uint8)))
    npz(tmp_path / "cifar10/notes.npz", z=np.ones(3))
    small = npz(tmp_path / "cifar10/small.npz", **subset("f", np.ones((20, 4), np.float16)))
    split = data.cifar10.load(tmp_path)
    assert split.source == "CIFAR-10, a.npz: a balanced subset: 2 train and 2 test images a class"
    split = data.cifar10.features(tmp_path)
    assert split.x_train.dtype == np.float32 and split.y_train.dtype == np.int32
    assert split.source == (
        "features of CIFAR-10, small.npz: a balanced subset: 2 train and 2 test images a class"
    )
    npz(tmp_path / "cifar10/resnet.npz", **subset("f", np.ones((13, 512), np.float32)))
    split = data.cifar10.features(tmp_path)
    assert split.source == "features of CIFAR-10, resnet.npz: a subset: 13 train and 13 test images"
    small.write_bytes(small.read_bytes()[:-30])
    damaged = [c.words for c in data.check(data.cifar10.DATASET, tmp_path) if not c.fits]
    assert damaged and all("small.npz is damaged" in words for words in damaged)


def test_cifar_in_one_part_is_divided_by_class(tmp_path):
    y = np.array([0] * 5 + [1] * 10)
    f = np.arange(15, dtype=np.float32)[:, None]
    npz(tmp_path / "cifar100/resnet.npz", f=f, y=y)
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
    "has no array y": {"x": PIXELS},
    "has images float64": subset("x", PIXELS.astype(float)),
    r"has images uint8\(3, 28, 28\)": subset("x", PIXELS[:, :28, :28, 0]),
    r"labels int64\(4,\) for images": subset("x", PIXELS) | {"y_train": np.zeros(4, int)},
    "labels float64": subset("x", PIXELS) | {"y_train": np.zeros(3)},
    "labels 10 to 10 among 10": subset("x", PIXELS) | {"y_test": np.full(3, 10)},
    r"labels int64\(2,\) for images": {"x": PIXELS, "y": np.zeros(2, int)},
    r"labels int64\(3,\) for images uint8\(\)": {"x": PIXELS[0, 0, 0, 0], "y": np.zeros(3, int)},
    "labels -1 to": {"x": PIXELS, "y": np.full(3, -1)},
    r"labels uint8\(0,\) for images": subset("x", PIXELS[:0]) | {"y_train": np.zeros(0, np.uint8)},
}


@pytest.mark.parametrize("why", BAD_NPZ)
def test_npz_refuses(tmp_path, why, monkeypatch):
    monkeypatch.chdir(tmp_path)
    npz(tmp_path / "cifar10/a.npz", **BAD_NPZ[why])
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
        npz_arrays(path, limit=1_000_000)


@pytest.mark.parametrize("content", [b"", b"no zip", pickle.dumps({"x": 1})])
def test_what_is_no_npz_is_refused(tmp_path, content):
    with pytest.raises(DataError, match="is damaged"):
        npz_arrays(write(tmp_path / "a.npz", content))


NOISE = np.random.default_rng(0).integers(256, size=(4, 3073), dtype=np.uint8)


def archives(folder):
    """A small file of every format, and what reads it."""
    images = NOISE[:, :784].reshape(4, 28, 28)
    write(folder / "idx.gz", gzip.compress(idx(images)))
    records = [(name, NOISE[i].tobytes()) for i, name in enumerate(("d/b", "d/t"))]
    whole = {"d/a": 2, "d/b": 1, "d/t": 1}
    members = {name: n * 3073 for name, n in whole.items()}
    tar(folder / "cifar.tar.gz", ("d/a", NOISE[2:].tobytes()), *records)
    arrays = {"x": NOISE[:, :90].astype(np.float32), "names": np.array(["a", "b"])}
    np.savez(folder / "stored.npz", **arrays)
    npz(folder / "deflated.npz", **arrays)
    drawn = [f"images_background/A/character01/000{i}_01.png" for i in (1, 2)]
    zipped(folder / "omniglot.zip", [(name, NOISE[i].tobytes()) for i, name in enumerate(drawn)])
    drawings = lambda path: {match.string: png for _, match, png in data.omniglot._pngs([path])}
    return {
        "idx.gz": lambda path: {"": _idx.read(path, (4, 28, 28))},
        "cifar.tar.gz": lambda path: tar_members(path, members),
        "stored.npz": npz_arrays,
        "deflated.npz": npz_arrays,
        "omniglot.zip": drawings,
    }


FORMATS = ("idx.gz", "cifar.tar.gz", "stored.npz", "deflated.npz", "omniglot.zip")


@pytest.mark.parametrize("name", FORMATS)
def test_a_flipped_bit_is_harmless_or_an_error(tmp_path, name):
    """Never other data: checksums stand at the end of what they protect, so all of it is read."""
    read, path = archives(tmp_path)[name], tmp_path / name
    content, wanted = bytearray(path.read_bytes()), archives(tmp_path)[name](path)
    rng, refused = np.random.default_rng(1), 0
    for place in rng.choice(8 * len(content), 400, replace=False).tolist():
        content[place // 8] ^= 1 << place % 8
        path.write_bytes(content)
        content[place // 8] ^= 1 << place % 8
        try:
            got = read(path)
        except DataError:
            refused += 1
            continue
        assert all(np.array_equal(got[k], wanted[k]) for k in got), (place // 8, place % 8)
        assert got.keys() == wanted.keys() or name.endswith((".npz", ".zip")), place
    assert refused > 300


@pytest.mark.parametrize("name", FORMATS)
def test_a_file_cut_short_is_an_error(tmp_path, name):
    read, path = archives(tmp_path)[name], tmp_path / name
    content = path.read_bytes()
    for length in np.linspace(0, len(content) - 1, 60).astype(int).tolist():
        path.write_bytes(content[:length])
        with pytest.raises(DataError):
            read(path)


def test_features_of_all_images(tmp_path):
    f, y = np.zeros((50_000, 1), np.float32), np.arange(50_000) % 10
    arrays = {"f_train": f, "y_train": y, "f_test": f[:10_000], "y_test": y[:10_000]}
    npz(tmp_path / "cifar10/resnet.npz", **arrays)
    words = "features of CIFAR-10, resnet.npz: all images: 50,000 train and 10,000 test"
    assert data.cifar10.features(tmp_path).source == words


@pytest.mark.parametrize("value", [np.nan, np.inf, 1e300])
def test_features_must_be_finite(tmp_path, value):
    nan = subset("f", np.full((3, 2), value))
    npz(tmp_path / "cifar10/resnet.npz", **nan)
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
