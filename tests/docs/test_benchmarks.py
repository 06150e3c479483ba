"""The comparison with other libraries: who is wrong is called wrong, who fails stops nobody."""

import json
from pathlib import Path
from types import SimpleNamespace

import jax
import numpy as np
import pytest
from benchmarks.peers import agree, harness, measure, ours, page, plain_jax, problems, records
from benchmarks.peers.figures import FIGURES, draw, ratios
from benchmarks.peers.goals import goals
from benchmarks.peers.growth import slope
from benchmarks.peers.wants import Full, NotOfferedError, Program, Truncated

PAGE = Path(__file__).parents[2] / "docs" / "benchmarks.md"


def crooked(problem, want):
    """A library that is ten percent off, except where it has nothing to give or breaks."""
    if want == Truncated(1):
        raise NotOfferedError("no truncation")
    if want == Truncated(5):
        raise RuntimeError("it broke\nsomewhere")
    right = ours.build(problem, want)
    return Program(right.run, lambda out: {k: 1.1 * a for k, a in right.read(out).items()})


CROOKED = SimpleNamespace(build=crooked)


@pytest.mark.parametrize("name", ["toy", "hypercleaning", "MLP, Adam"])
def test_ours_agrees_with_plain_jax(name):
    problem = problems.tiny(name).cast("float64")
    for want in (Full(), Truncated(5)):
        with jax.numpy_dtype_promotion("standard"):  # optax's Adam promotes
            found = agree.judge(ours, problem, want, None)
        assert found["status"] == "agrees" and found["distance"] < 1e-10


def test_wrong_is_called_wrong(tmp_path):
    found = {row["want"]: row for row in agree.rows("crooked", CROOKED, ["toy"], tmp_path)}
    assert found["full"]["status"] == "differs"
    assert np.isclose(found["full"]["distance"], 0.1)
    assert found["K=1"]["status"] == "not offered"
    assert found["K=5"]["message"] == "RuntimeError: it broke"
    again = agree.judge(plain_jax, problems.tiny("toy").cast("float64"), Full(), tmp_path)
    assert again["status"] == "agrees"  # against the reference on disk


def test_times_go_on_when_one_fails():
    who = {"bilevax": ours, "crooked": CROOKED}
    methods = [("crooked", Truncated(5)), ("crooked", Full()), ("bilevax", Full())]
    found = records.latest(
        [json.dumps(r) for r in measure.times(problems.tiny("toy"), methods, 60, who.get, 2)]
    )
    broken, off, right = found
    assert broken["status"] == "failed" and off["status"] == right["status"] == "measured"
    assert off["error"] > 0.09 and right["error"] < 1e-5
    assert right["rounds"] == 2 and right["ms"] > 0 and right["program_bytes"] > 0


def test_memory_is_what_a_computation_adds():
    class Hungry:
        @staticmethod
        def build(problem, want):
            return Program(lambda: np.ones(problem.T * 1_000_000), lambda out: {})

    found = measure.memory(Hungry, problems.toy(T=20), Full(), problems.toy(T=1))
    assert 0.8 * 160e6 < found["added_bytes"] < 1.2 * 160e6


def test_a_child_that_dies_leaves_its_message():
    case = harness.Case("times", "nothing", {"problem": "nothing", "T": None, "quick": True}, 300)
    found = harness.run(case, lambda n: None)
    assert found["status"] == "failed" and "KeyError" in found["message"] and found["rows"] == []


def test_records_are_written_and_resumed(tmp_path, monkeypatch):
    asked = []

    def run(case, advance, patience, cache):
        asked.append(case.name)
        ended = "failed" if case.name == "higher" else "done"
        return {"status": ended, "message": "not there", "seconds": 1.0, "rows": []}

    monkeypatch.setattr(harness, "run", run)
    harness.measure(tmp_path, True, 1, ["agreement"])
    assert sorted(asked) == sorted(harness.LIBRARIES)
    harness.measure(tmp_path, True, 1, ["agreement"])
    assert asked[len(harness.LIBRARIES) :] == ["higher"]  # the rest is there
    monkeypatch.setattr(harness, "versions", lambda: {"torch": "another"})
    harness.measure(tmp_path, True, 1, ["agreement"])
    assert sorted(asked[-len(harness.LIBRARIES) :]) == sorted(harness.LIBRARIES)
    rows = records.rows(tmp_path, "agreement")
    assert [(row["library"], row["message"]) for row in rows] == [("higher", "not there")]


def test_an_unfinished_line_is_not_a_row():
    lines = ['{"library": "a", "ms": 2}', '{"library": "a", "ms": 1}', '{"library": "b", "m']
    assert records.latest(lines) == [{"library": "a", "ms": 1}]


def _record(out, kind, rows):
    env = {
        "processor": "one",
        "cores": 2,
        "python": "3.11",
        "packages": {"jax": "0", "torch": None},
    }
    case = {"settings": {"quick": True}, "environment": env, "status": "done", "seconds": 60}
    records.write(out, kind, kind, case | {"rows": rows, "message": ""})


@pytest.fixture
def measured(tmp_path):
    def time(problem, library, want, ms, error):
        label = {"problem": problem, "T": 100, "library": library, "want": want}
        cost = {"ms": ms, "error": error, "compile_s": 1.0, "program_bytes": 10**6}
        return label | cost | {"status": "measured"}

    rows = [
        time(problem, library, want, ms, error)
        for problem in ("hypercleaning", "MLP, Adam")
        for library, want, ms, error in [
            ("bilevax", "full", 10.0, 1e-8), ("plain PyTorch", "full", 45.0, 1e-6),
            ("BOAT", "full", 20.0, 0.3), ("bilevax", "K=5", 4.0, 0.04),
            ("higher", "K=5", 3.0, 0.04),
        ]
    ]  # fmt: skip
    _record(tmp_path, "times", rows)
    label = {"library": "BOAT", "problem": "hypercleaning", "want": "full"}
    _record(tmp_path, "agreement", [label | {"status": "differs", "distance": 0.3}])
    added = {"problem": "hypercleaning", "T": 100, "want": "full", "status": "measured"}
    sizes = {"bilevax": 4e6, "plain PyTorch": 8e7}
    _record(
        tmp_path, "memory", [added | {"library": k, "added_bytes": v} for k, v in sizes.items()]
    )
    grown = [
        {"rule": "Reverse", "letter": "T", "value": T, "bytes": 8 * T, "extra_ms": T}
        for T in (1, 10)
    ]
    _record(tmp_path, "growth", grown)
    return tmp_path


def test_figures_are_drawn_from_records(measured):
    paths = draw(measured)
    assert [path.stem for path in paths] == list(FIGURES)
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in paths)
    assert ratios(measured)["hypercleaning", "full"]["plain PyTorch"] == 4.5


def test_page_is_drawn_from_records(measured):
    text = page.fill(PAGE.read_text("utf-8"), measured)
    assert "Not measured yet" not in text and page.fill(text, measured) == text
    assert "Quick mode" in text and "| BOAT | **wrong**, by 3.0e-01 |" in text
    assert "2.00 (wrong)" in text and "| MLP, Adam, K=5 | higher | 0.75 |" in text
    assert "| `Reverse`, memory | 1.00 (1) |" in text


def test_goals_pass_over_who_is_wrong(measured):
    found = {line[0]: line[2:] for line in goals(measured)[1]}
    name = "hypercleaning, full: faster than the fastest of PyTorch (plain PyTorch)"
    assert found[name] == ["4.5 x", "reached"]
    missed = "hypercleaning, K=5: faster than the fastest of PyTorch (higher)"
    assert found[missed] == ["0.75 x", "**missed**"]
    memory = "hypercleaning, T = 100, all steps: less memory than plain unrolling in PyTorch"
    assert found[memory] == ["20 x", "reached"]


def test_slope():
    assert np.isclose(slope([1, 10, 100], [2, 20, 200]), 1)
    assert slope([1, 10], [0, 1]) is None
