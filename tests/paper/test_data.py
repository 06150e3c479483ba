"""Data sets: where they are found, what the command line says of them, and the real files."""

import dataclasses
import zlib

import numpy as np
import pytest
from data_files import BODY, alone, file_at, idx_set, npz, serving, subset, write
from typer.testing import CliRunner

from bilevax.cli._app import app
from bilevax.paper import data
from bilevax.paper.data import DataError, _places

REAL = list(_places.places())[:-1]
"""Where the real files may be; what is in the user's cache is left alone."""


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    return alone(tmp_path, monkeypatch)


@pytest.fixture
def server():
    with serving() as server:
        yield server


# Places


def test_the_first_place_wins(tmp_path, cache, monkeypatch):
    features = "cifar10/of_my_network.npz"
    order = ["data_dir", "variable", "cache"]
    for n, place in enumerate(order):
        npz(tmp_path / place / features, **subset("f", np.full((10, 1), n, np.float32)))
    monkeypatch.setenv("BILEVAX_DATA", str(tmp_path / "variable"))
    assert data.cifar10.features(tmp_path / "data_dir").x_test[0, 0] == 0
    for n, place in enumerate(order[1:], 1):
        assert data.cifar10.features().x_test[0, 0] == n
        (tmp_path / place / features).unlink()
    with pytest.raises(
        DataError, match="an .npz file with arrays f_train, y_train, f_test, y_test, or f and y"
    ):
        data.cifar10.features()


def test_the_official_archive_comes_before_a_subset(tmp_path):
    npz(tmp_path / "cifar10/some.npz", **subset("x", np.zeros((3, 32, 32, 3), np.uint8)))
    assert data.find(data.cifar10.DATASET, tmp_path).form is data.cifar10.DATASET.forms[1]
    write(tmp_path / "cifar10/cifar-10-binary.tar.gz", b"")
    assert data.find(data.cifar10.DATASET, tmp_path).form is data.cifar10.DATASET.forms[0]


def test_a_place_with_some_of_the_files_is_passed_over(tmp_path):
    idx_set(tmp_path / "mnist")
    assert data.find(data.mnist.DATASET, tmp_path)
    (tmp_path / "mnist/t10k-labels-idx1-ubyte.gz").unlink()
    assert data.find(data.mnist.DATASET, tmp_path) is None


def test_a_place_that_is_no_folder(tmp_path, monkeypatch):
    with pytest.raises(DataError, match="data_dir = .*nowhere is not a folder"):
        data.mnist.load(tmp_path / "nowhere")
    monkeypatch.setenv("BILEVAX_DATA", str(tmp_path / "nowhere"))
    with pytest.raises(DataError, match="BILEVAX_DATA = .*nowhere is not a folder"):
        data.mnist.load()


@pytest.mark.parametrize("name", [n for n, d in data.DATASETS.items() if d.files])
def test_a_missing_set_says_three_ways_in_one_sentence(name, cache):
    with pytest.raises(DataError) as caught:
        getattr(data, name.replace("-", "_")).load()
    words, dataset = str(caught.value), data.DATASETS[name]
    assert f"{name} is not in {cache} and could not be fetched (ConnectionError" in words
    assert "data_dir" in words and "BILEVAX_DATA" in words
    assert all(file.name in words for file in dataset.files)
    assert dataset.files[0].url.rsplit("/", 1)[0] in words and str(cache / name) in words
    assert f"bilevax data fetch {name}" in words
    assert words.count(". ") == 0 and words.endswith(".") and "\n" not in words


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
    table, places = result.output.split("\n\n")
    assert "170 MB" in table and len(table.splitlines()) == 1 + len(data.DATASETS)
    lines = dict(line.split(": ", 1) for line in places.splitlines())
    assert set(lines) == set(data.DATASETS)
    assert lines["mnist"].startswith(str(tmp_path))  # whole, however long
    assert lines["omniglot"] == "not found; fetch it with: bilevax data fetch omniglot"
    assert lines["digits"] == "scikit-learn"


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


# The real files, where they are


def place_of(dataset, forms):
    for place in REAL:
        if any(True for form in forms for _ in form.there(place / dataset.name)):
            return place
    pytest.skip(f"{dataset.name} is not in BILEVAX_DATA")


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
