"""Fetching: whole and verified, or not at all."""

import dataclasses
import gzip
import hashlib

import pytest
from data_files import BODY, SHA256, alone, file_at, serving, write

from bilevax.paper import data
from bilevax.paper.data import DataError, File, _download


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    return alone(tmp_path, monkeypatch)


@pytest.fixture
def server():
    with serving() as server:
        yield server


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
