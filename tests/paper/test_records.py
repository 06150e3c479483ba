"""Runs on disk, and rules as text."""

import json
import math
import multiprocessing
import os
import signal
import time
import tomllib

import pytest
from hypothesis import given
from hypothesis import strategies as st

import bilevax as bx
from bilevax._errors.checkpoints import InUseError
from bilevax.paper.records import Records, RunError, load, toml

CONFIG = {"experiment": "toy", "steps": 3, "rules": ["Reverse(K=5)"], "name": 'a "quoted" ü'}


def test_round_trip(tmp_path):
    with Records(tmp_path / "run", CONFIG) as records:
        records.add(kind="evaluation", step=0, value=0.5)
        records.extend([{"kind": "evaluation", "step": i, "value": i / 2} for i in (1, 2)])
    run = load(tmp_path / "run")
    assert run.config == CONFIG and run.experiment == "toy"
    assert [row["value"] for row in run.of("evaluation")] == [0.5, 0.5, 1.0]
    assert run.of("evaluation", step=2) == [{"kind": "evaluation", "step": 2, "value": 1.0}]
    assert run.env["packages"]["jax"] and run.env["cores"] >= 1


def test_no_row_is_lost_for_columns_of_its_own(tmp_path):
    """Rows that differ in a column that nobody knows, and rows that do not differ at all."""
    with Records(tmp_path, CONFIG) as records:
        for epoch in (1, 2, 2):
            records.add(kind="evaluation", epoch=epoch)
        assert not records.has(kind="evaluation", epoch=1)  # without keys there are no repeats
    assert [row["epoch"] for row in load(tmp_path).rows] == [1, 2, 2]


def test_resume_cuts_a_torn_line_and_repeats_nothing(tmp_path):
    keys = ("kind", "step")
    with Records(tmp_path, CONFIG, keys=keys) as records:
        records.add(kind="a", step=0, value=1)
    with open(tmp_path / "records.jsonl", "ab") as file:
        file.write(b'{"kind": "a", "step": 1, "val')
    assert len(load(tmp_path).rows) == 1
    with Records(tmp_path, CONFIG, keys=keys, resume=True) as records:
        assert records.has(kind="a", step=0) and not records.has(kind="a", step=1)
        records.add(kind="a", step=0, value=2)  # there
        records.add(kind="a", step=1, value=3)
    assert [row["value"] for row in load(tmp_path).rows] == [1, 3]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({}, "holds a run; give resume=True"),
        ({"resume": True, "steps": 4}, "steps = 3, not 4"),
        ({"resume": True, "extra": 1}, "extra = nothing, not 1"),
    ],
)
def test_another_run_is_refused(tmp_path, change, message):
    Records(tmp_path, CONFIG).close()
    resume = change.pop("resume", False)
    with pytest.raises(RunError, match=message):
        Records(tmp_path, CONFIG | change, resume=resume)


def test_a_run_has_one_writer(tmp_path):
    with Records(tmp_path, CONFIG), pytest.raises(InUseError, match="in use by this process"):
        Records(tmp_path, CONFIG, resume=True)
    with pytest.raises(RunError, match="steps = 3, not 4"):
        Records(tmp_path, CONFIG | {"steps": 4}, resume=True)
    Records(tmp_path, CONFIG, resume=True).close()  # what was refused has left no lock


def test_a_folder_with_two_names_has_one_writer(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with Records("run", CONFIG), pytest.raises(InUseError, match="in use by this process"):
        Records(tmp_path / "run", CONFIG, resume=True)


def test_what_is_no_run(tmp_path):
    with pytest.raises(RunError, match=r"no config\.toml"):
        load(tmp_path)
    (tmp_path / "thesis.tex").write_text("mine")
    with pytest.raises(RunError, match="not empty and not a run"):
        Records(tmp_path, CONFIG)
    with Records(tmp_path / "run", CONFIG) as records:
        records.add(kind="a")
    with pytest.raises(RunError, match=f"it holds runs: give {tmp_path / 'run'}"):
        load(tmp_path)
    (tmp_path / "run" / "records.jsonl").write_text('{"kind": "a"}\n{oops}\n{"kind": "b"}\n')
    with pytest.raises(RunError, match="line 2, is damaged"):
        load(tmp_path / "run")


def write_for_ever(path):
    with Records(path, {"experiment": "x"}, keys=["step"], resume=True) as records:
        for step in range(10**9):
            records.add(kind="a", step=step, text="x" * 500)


@pytest.mark.filterwarnings("ignore:.*fork")  # the child touches no JAX
def test_killed_while_writing(tmp_path):
    """kill -9, three times: every row that was written once is there once, in order."""
    for _ in range(3):
        writer = multiprocessing.get_context("fork").Process(
            target=write_for_ever, args=(tmp_path / "run",)
        )
        writer.start()
        rows = tmp_path / "run" / "records.jsonl"
        before = rows.stat().st_size if rows.exists() else 0
        while not rows.exists() or rows.stat().st_size < before + 20_000:
            time.sleep(0.01)
            assert writer.is_alive()
        os.kill(writer.pid, signal.SIGKILL)
        writer.join()
    steps = [row["step"] for row in load(tmp_path / "run").rows]
    assert steps == list(range(len(steps))) and len(steps) > 100


TEXT = st.text(st.characters(exclude_categories=("Cs",)))
WORD = st.from_regex(r"[a-z_]+", fullmatch=True)


@given(st.dictionaries(WORD, TEXT | st.integers(-(2**63), 2**63 - 1) | st.lists(TEXT)))
def test_config_text_is_toml(config):
    assert tomllib.loads(toml(config)) == config


def test_not_a_number_is_kept(tmp_path):
    with Records(tmp_path, CONFIG) as records:
        records.add(kind="a", value=math.nan)
    assert math.isnan(load(tmp_path).rows[0]["value"])
    assert json.loads((tmp_path / "env.json").read_text())


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("Reverse(K=5)", bx.Reverse(K=5)),
        (" Reverse ", bx.Reverse()),
        ("Krylov(2, 4)", bx.Krylov(2, 4)),
        ("AdaptiveReverse(0.1, max_K=9)", bx.AdaptiveReverse(0.1, max_K=9)),
        ("Reverse(K=None, segment=7)", bx.Reverse(segment=7)),
        ("Reverse(segment=(12, 4))", bx.Reverse(segment=(12, 4))),
    ],
)
def test_rules_as_text(text, rule):
    assert bx.extend.parse_rule(text) == rule


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("Revers(K=5)", "names no rule; give one of Reverse"),
        ("Reverse(Q=5)", "wrong arguments; it is Reverse"),
        ("Reverse(K=0)", "at least 1"),
        ("__import__('os').system('true')", "cannot be read"),
        ("Reverse(K=open('x'))", "cannot be read"),
        ("Reverse(K=2**9)", "cannot be read"),
        ("Reverse(**{'K': 1})", "cannot be read"),
        ("[Reverse()]", "cannot be read"),
        ("(" * 5000, "cannot be read"),
        ("", "cannot be read"),
    ],
)
def test_rules_as_wrong_text(text, message):
    with pytest.raises(ValueError, match=message):
        bx.extend.parse_rule(text)
