"""The paper's experiments in small: they learn, they resume, they refuse in a sentence."""

import dataclasses
import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from bilevax.cli import main
from bilevax.cli._app import app
from bilevax.paper import experiments
from bilevax.paper.experiments import hypercleaning, toy
from bilevax.paper.experiments._balanced import balanced
from bilevax.paper.experiments.hypercleaning.corrupt import corrupt
from bilevax.paper.records import Records, load
from bilevax.paper.report import report

SMALL = dataclasses.replace(
    hypercleaning.Config.quick(), rules=("Reverse(K=5)", "Krylov(2, 4)"), steps=60, every=20
)


@pytest.fixture(scope="module")
def toy_run(tmp_path_factory):
    out = tmp_path_factory.mktemp("toy") / "run"
    config = dataclasses.replace(toy.Config.quick(), depths=(1, 100), steps=30, grid=5)
    toy.run(config, out)
    return load(out)


def test_toy_surface(toy_run):
    """Against the closed form of section 4.1: w_T = C w_0 + (I - C) lam."""
    C = (1 - 0.1 * np.array([1.0, 0.5])) ** 100
    for row in toy_run.of("surface"):
        w = C * 2 + (1 - C) * np.stack([row["x"], np.full(5, row["y"])], 1)
        np.testing.assert_allclose(row["f"], np.sum(w**2 + 10 * np.sin(w) ** 2, 1), atol=1e-5)


def test_toy_bias(toy_run):
    """Against the closed form, with alpha = 1/2 and M_B = gamma, as the paper has it."""
    rows = toy_run.of("bias")
    C = (1 - 0.1 * np.array([1.0, 0.5])) ** 100
    w = C * 2 + (1 - C)
    slope = 2 * w + 10 * np.sin(2 * w)
    assert [row["K"] for row in rows] == list(range(1, 101))
    for row in rows:
        kept = (1 - 0.1 * np.array([1.0, 0.5])) ** row["K"]
        np.testing.assert_allclose(row["bias"], np.linalg.norm((kept - C) * slope), atol=1e-9)
        bound = 0.95 ** row["K"] / 0.05 * np.linalg.norm(slope) * 0.1
        np.testing.assert_allclose(row["bound"], bound, rtol=1e-6)
        assert row["bias"] <= row["bound"]


def test_toy_trajectories(toy_run):
    """The first update is 0.6 long; f converges for K = 1 and f~ only for full depth."""
    last = {}
    for objective in ("f", "f~"):
        for K in (1, 100):
            rows = toy_run.of("iterate", objective=objective, K=K)
            path = np.array([[row["lam_1"], row["lam_2"]] for row in rows])
            np.testing.assert_allclose(np.linalg.norm(path[1] - path[0]), 0.6, rtol=1e-9)
            last[objective, K] = rows[-1]["distance"]
    assert last["f", 1] < 0.02 and last["f", 100] < 0.02 and last["f~", 100] < 0.02
    assert last["f~", 1] > 0.3


def test_toy_descent(toy_run):
    """Lemma 3.2 holds along the way for f, and fails for f~ (Figure 2)."""
    ratio = lambda objective, K: [
        r["ratio"] for r in toy_run.of("descent", objective=objective, K=K)
    ]
    assert min(ratio("f", 1)) > 0.04 and min(ratio("f~", 1)) < -0.1
    np.testing.assert_allclose(ratio("f~", 100), 1.0, rtol=0.01)


def test_corruption():
    x, y = np.arange(3000.0)[:, None], np.arange(3000) % 10
    data = corrupt(x, y, 1000, 500, 0.5, seed=3)
    rows = np.concatenate([part[:, 0] for part in (data.x, data.x_val, data.x_test)])
    assert sorted(rows) == list(range(3000))  # nothing twice, nothing lost
    true = data.x[:, 0] % 10
    assert (np.bincount(true.astype(int)) == 100).all() and (np.bincount(data.y_val) == 50).all()
    assert (data.wrong == (data.y != true)).all() and 0.40 < data.wrong.mean() < 0.50
    assert (data.x[:, 1] == 1).all()
    with pytest.raises(ValueError, match="more than there are"):
        balanced(y, (2000, 2000), np.random.default_rng(0))


@pytest.fixture(scope="module")
def cleaning(tmp_path_factory):
    out = tmp_path_factory.mktemp("cleaning") / "run"
    hypercleaning.run(SMALL, out)
    return load(out)


def test_cleaning_learns(cleaning):
    """Wrong labels are found, and the test accuracy rises well above that of noisy training."""
    for rule in SMALL.rules:
        rows = cleaning.of("evaluation", rule=rule)
        assert [row["step"] for row in rows] == [0, 20, 40, 60]
        first, last = rows[0], rows[-1]
        assert last["f1_1"] > 0.9 and last["validation_loss"] < 0.75 * first["validation_loss"]
        assert last["test_accuracy"] > first["test_accuracy"] + 0.01
        assert last["gradient_norm"] < first["gradient_norm"] / 2
        (cost,) = cleaning.of("cost", rule=rule)
        assert 0 < cost["bytes"] < 10 * cost["forward_bytes"]


def test_cleaning_starts_alike(cleaning):
    """Whatever the rule, the first update has one length; so the first losses are near."""
    losses = [cleaning.of("evaluation", rule=rule, step=20)[0] for rule in SMALL.rules]
    np.testing.assert_allclose(*[row["validation_loss"] for row in losses], rtol=0.1)


KILLED = """
import dataclasses, sys
from pathlib import Path
from bilevax.paper.experiments import hypercleaning
quick = hypercleaning.Config.quick()
config = dataclasses.replace(quick, rules=("Reverse(K=5)",), steps=60, every=5)
hypercleaning.run(config, Path(sys.argv[1]), resume=True)
"""


@pytest.mark.slow
def test_cleaning_resumes(tmp_path):
    """kill -9 in the middle: the records are those of a run that nobody disturbed."""
    run = lambda out: subprocess.Popen([sys.executable, "-c", KILLED, str(out)])
    first, rows = run(tmp_path / "killed"), tmp_path / "killed" / "records.jsonl"
    while not rows.exists() or rows.read_bytes().count(b"\n") < 4:
        time.sleep(0.02)
        assert first.poll() is None
    os.kill(first.pid, signal.SIGKILL)
    first.wait()
    again, straight = run(tmp_path / "killed"), run(tmp_path / "straight")
    assert again.wait() == 0 and straight.wait() == 0
    both = [load(tmp_path / name).of("evaluation") for name in ("killed", "straight")]
    assert both[0] == both[1] and len(both[0]) == 13


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run", "toyy"], "did you mean toy"),
        (["run", "nothing"], "give one of toy"),
        (["run", "toy", "--rule", "Reverse(K=5)"], "has no rules to choose"),
        (["run", "hypercleaning", "--rule", "Reverse(K=x)"], "cannot be read"),
    ],
)
def test_wrong_commands(arguments, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(app, arguments)
    assert isinstance(result.exception, ValueError) and message in str(result.exception)
    assert not list(tmp_path.iterdir())


@pytest.fixture
def outside(tmp_path, monkeypatch):
    """A folder with the module that docs/report.md shows, and nothing of it in the package."""
    page = (Path(__file__).parents[2] / "docs" / "report.md").read_text()
    (module,) = re.findall(
        r"```python\n(.*?)```", page.split("## An experiment of your own")[1], re.S
    )
    (tmp_path / "mine.py").write_text(module)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield tmp_path
    sys.modules.pop("mine", None)


def test_an_experiment_of_ones_own(outside):
    """Run and shown by the commands of the page, from the folder that it is in."""
    call = lambda *arguments: CliRunner().invoke(app, [str(a) for a in arguments])
    done = call("run", "mine:experiment", "--steps", 20, "--out", "runs/mine")
    assert done.exit_code == 0 and "--experiment mine:experiment" in done.output, done.output
    assert len(load("runs/mine").of("evaluation")) == 20
    assert "give --resume" in str(call("run", "mine:experiment", "--out", "runs/mine").exception)
    shown = call("report", "runs/mine", "--experiment", "mine:experiment", "-o", "page.html")
    assert shown.exit_code == 0 and "What one sees." in Path("page.html").read_text()
    call("report", "runs/mine", "-o", "plain.html")  # nothing that a run names is imported
    assert "The last one of each kind" in Path("plain.html").read_text()


def test_an_experiment_of_an_installed_package(outside, monkeypatch):
    info = outside / "mine-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: mine\nVersion: 1\n")
    (info / "entry_points.txt").write_text("[bilevax.experiments]\nmine = mine:experiment\n")
    monkeypatch.syspath_prepend(str(outside))
    assert "a loss that falls" in CliRunner().invoke(app, ["list"]).output
    mine = experiments.find("mine")
    mine.run(mine.configure("quick", {"steps": 3}), outside / "run")
    report([outside / "run"], outside / "page.html")
    assert "What one sees." in (outside / "page.html").read_text()


@pytest.mark.parametrize(
    "name, message",
    [
        ("nowhere:experiment", "cannot be imported: No module named 'nowhere'"),
        ("mine:nothing", "cannot be imported: module 'mine' has no attribute 'nothing'"),
        ("mine:run", "mine:run is a function; give an Experiment"),
        (":x", "cannot be imported"),
    ],
)
def test_wrong_experiments(name, message, outside):
    sys.path.insert(0, "")
    with pytest.raises(ValueError, match=message):
        experiments.find(name)


def test_a_run_that_is_in_use_ends_in_a_sentence(monkeypatch, capsys, tmp_path):
    config = asdict(experiments.find("toy").configure("quick", {}))
    with Records(tmp_path, config):
        monkeypatch.setattr(
            "sys.argv", ["bilevax", "run", "toy", "--resume", "--out", str(tmp_path)]
        )
        with pytest.raises(SystemExit, match="1"):
            main()
    assert "is in use by this process: wait until that run has ended" in capsys.readouterr().err


def test_commands(monkeypatch, capsys):
    assert all(name in CliRunner().invoke(app, ["list"]).output for name in experiments.known())
    result = CliRunner().invoke(app, ["run", "toy", "--preset", "huge"])
    assert str(result.exception) == "preset 'huge' is not known; give one of quick, paper."
    monkeypatch.setattr("sys.argv", ["bilevax", "run", "toyy"])
    with pytest.raises(SystemExit, match="1"):
        main()
    said = capsys.readouterr().err
    assert said == "bilevax: experiment 'toyy' is not known; did you mean toy?\n"
