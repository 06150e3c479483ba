"""The GPT example in small: bad documents are found, and what was killed goes on."""

import shutil

import jax
import numpy as np
import pytest
from examples.gpt.problem import Setting, problem
from examples.gpt.run import main
from examples.gpt.scores import area, curve
from examples.gpt.text import CODE, SHUFFLED, Batches, kinds

from bilevax.paper.records import load

SMALL = Setting(
    documents=36, judges=8, size=512, length=16, rows=12, layers=1, width=16, heads=2, T=60,
    every=20, warm=10, segment=20,
)  # fmt: skip
KIND = kinds(SMALL.documents)


@pytest.fixture(scope="module")
def p():
    with jax.enable_x64(False), jax.numpy_dtype_promotion("standard"):
        yield problem(SMALL)


def rows(folder):
    cost = {"seconds": 0, "cpu": 0, "peak_bytes": 0}
    return [row | cost for row in load(folder).rows]


def test_one_metagradient_finds_shuffled_documents(p):
    h = np.array(p.metagradient()(p.start(1e-2), p.valid).h["weight"])
    known = np.isin(KIND, [CODE, SHUFFLED])
    assert area(h[known], KIND[known] == SHUFFLED) > 0.9


@pytest.mark.slow
def test_the_same_command_goes_on(p, tmp_path, capsys):
    main(p, tmp_path / "whole", rates=(3e-3, 1e-2), steps=1)
    said = capsys.readouterr().out
    shutil.copytree(tmp_path / "whole", tmp_path / "killed")
    record = tmp_path / "killed" / "records.jsonl"
    record.write_bytes(record.read_bytes()[:2000])  # in the middle of a line
    main(p, tmp_path / "killed", rates=(3e-3, 1e-2), steps=1)
    assert capsys.readouterr().out == said
    assert rows(tmp_path / "killed") == rows(tmp_path / "whole")


def test_every_document_has_its_turn():
    documents = np.arange(12 * 40).reshape(12, 40)
    batches = Batches(documents, rows=4, length=8)
    epochs = [
        np.sort(np.concatenate([batches[3 * i + j]["documents"] for j in range(3)]))
        for i in range(2)
    ]
    assert all(np.array_equal(epoch, np.arange(12)) for epoch in epochs)
    one, again = batches[5], batches[5]
    assert np.array_equal(one["tokens"], again["tokens"])
    assert np.array_equal(one["tokens"][:, 0] // 40, one["documents"])
    assert np.array_equal(np.diff(one["tokens"]), np.ones((4, 8)))


def test_area_and_curve():
    score, bad = np.array([3.0, 1.0, 2.0, 0.0]), np.array([True, False, False, True])
    assert area(score, bad) == 0.5 and area(np.zeros(4), bad) == 0.5
    good, found = curve(score, bad)
    assert found.tolist() == [0, 0.5, 0.5, 0.5, 1] and good.tolist() == [0, 0, 0.5, 1, 1]
