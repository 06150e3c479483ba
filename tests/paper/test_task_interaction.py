"""Task interaction: descent on V is descent on W, trials do not meet, pairs are found."""

import dataclasses
import shutil

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from typer.testing import CliRunner

import bilevax as bx
from bilevax._models import interaction as task
from bilevax.cli._app import app
from bilevax.paper import report as rp
from bilevax.paper.experiments import find
from bilevax.paper.experiments.task_interaction import Config, program, run, sections
from bilevax.paper.experiments.task_interaction.best import Stall
from bilevax.paper.experiments.task_interaction.sample import load as sample
from bilevax.paper.experiments.task_interaction.sample import prepared
from bilevax.paper.experiments.task_interaction.trials import Each, Trials, total
from bilevax.paper.page.table import spread
from bilevax.paper.records import Records, load

D, m, V = 20, 12, 4
rng = np.random.default_rng(0)
x, y = rng.random((2 * m, D)), rng.integers(V, size=2 * m)
S, X = task.trial(x, y, np.arange(m), np.arange(m, 2 * m))
LAM = task.first_lam(V, 0.05, 0.1)
LAM["B"] = LAM["B"] + jnp.asarray(rng.normal(size=(V, V)))


def g(W, lam, S):
    """As section 4.2.2 writes it, on the features."""
    C, rho = task.interaction(lam)
    loss = optax.softmax_cross_entropy_with_integer_labels(jnp.asarray(X) @ W.T, S.y)
    distance = jnp.sum((W[:, None] - W[None]) ** 2, -1)
    return jnp.mean(loss) + jnp.sum(C * distance) + rho * jnp.sum(W**2)


def f(W, lam, S):
    logits = jnp.asarray(x[m:]) @ W.T
    return jnp.mean(optax.softmax_cross_entropy_with_integer_labels(logits, S.y_val))


@pytest.mark.parametrize("rule", [bx.Reverse(), bx.Reverse(K=3)], ids=repr)
def test_as_in_feature_space(rule):
    plain = bx.Descent(g, bx.constant(jnp.zeros((V, D))), optax.sgd(0.1))
    wanted = bx.hypergradient(f, plain, rule, T=15)(LAM, S)
    found = bx.hypergradient(task.f, task.dynamics(0.1, V), rule, T=15)(LAM, S)
    np.testing.assert_allclose(found.w.T @ X, wanted.w, atol=1e-13)
    np.testing.assert_allclose(found.value, wanted.value, rtol=1e-12)
    for name in LAM:
        np.testing.assert_allclose(found.h[name], wanted.h[name], atol=1e-13)


@pytest.mark.parametrize("rule", [bx.Reverse(K=3), bx.Krylov(2, 3), bx.Neumann(3)], ids=repr)
def test_each_trial_is_alone(rule):
    stack = lambda *trees: jax.tree.map(lambda *a: jnp.stack(a), *trees)
    contexts = [S, S._replace(y=S.y_val)]
    lams = [LAM, jax.tree.map(lambda a: 1.1 * a, LAM)]
    together = bx.hypergradient(total(task.f), Trials(task.dynamics(0.1, V)), Each(rule), T=15)(
        stack(*lams), stack(*contexts)
    )
    alone = bx.hypergradient(task.f, task.dynamics(0.1, V), rule, T=15)
    for i in range(2):
        np.testing.assert_allclose(
            together.h["B"][i], alone(lams[i], contexts[i]).h["B"], atol=1e-14
        )


SMALL = dataclasses.replace(Config.quick(), rules=("Reverse(K=1)", "Reverse(K=50)"))


@pytest.fixture(scope="module")
def quick(tmp_path_factory):
    """A run; and, as "at 25" beside it, what its folder held at hyper-iteration 25."""
    out = tmp_path_factory.mktemp("task") / "run"
    see = Stall.see

    def kept(stall, step, score, lam):
        see(stall, step, score, lam)
        if step == 25 and not out.with_name("at 25").exists():
            shutil.copytree(out, out.with_name("at 25"))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Stall, "see", kept)
        run(SMALL, out)
    return load(out)


def test_learns(quick):
    """Well above the 1/6 of chance, a loss that falls, and a record of every trial."""
    for rule in SMALL.rules:
        stops = quick.of("stop", rule=rule)
        assert [row["trial"] for row in stops] == [0, 1, 2, 3]
        assert min(row["test_accuracy"] for row in stops) > 0.4
        assert {row["criterion"] for row in stops} == {"validation_accuracy"}
        rows = quick.of("evaluation", rule=rule, trial=2)
        assert (
            rows[0]["step"] == 0 and [r["step"] for r in rows[1:]] == [25, 50, 75][: len(rows) - 1]
        )
        assert rows[-1]["validation_loss"] < 0.95 * rows[0]["validation_loss"]
    assert all(row["cosine"] > 0.999 for row in quick.of("evaluation", rule="Reverse(K=50)"))
    assert all(row["cosine"] > 0.5 for row in quick.of("evaluation", rule="Reverse(K=1)", step=25))


def test_finds_the_pairs(quick):
    for rule in SMALL.rules:
        C = np.array([row["C"] for row in quick.of("interaction", rule=rule)])
        pairs = C[[0, 2, 4], [1, 3, 5]]
        others = [C[i, j] for i in range(6) for j in range(i) if i // 2 != j // 2]
        assert pairs.min() > max(others) and pairs.min() > 3 * np.median(others)
        np.testing.assert_allclose(C, C.T, rtol=1e-6)


def test_what_a_stop_says(quick):
    """Its numbers are those of the evaluation at its best hyper-iteration."""
    for stop in quick.of("stop"):
        of = lambda **k: quick.of("evaluation", rule=stop["rule"], trial=stop["trial"], **k)  # noqa: B023
        (at,) = of(step=stop["best_step"])
        for name in ("test_accuracy", "validation_accuracy"):
            np.testing.assert_allclose(at[name], stop[name], atol=1e-6)
        before = [row for row in of() if row["step"] <= stop["step"]]
        assert max(row["validation_accuracy"] for row in before) <= stop["validation_accuracy"]


def test_report(quick, tmp_path):
    shown = sections([quick])
    items = {item.name: item for section in shown for item in section.items}
    assert "made up" in shown[0].text[1]
    table = items["task-interaction-table3-pairs"]
    assert [row[0] for row in table.rows] == ["1", "50"] and table.rows[0][-1] == "4"
    mean = np.mean([row["test_accuracy"] for row in quick.of("stop", rule="Reverse(K=1)")])
    assert table.rows[0][1].startswith(f"{100 * mean:.2f} ± ")
    for name in ("loss", "gradient", "cosine"):
        chart = items[f"task-interaction-{name}-pairs"]
        assert [series.label for series in chart.series] == ["1", "50"] and chart.lost == 0
    heat = items["task-interaction-C-pairs"].heat
    places = {name: i for i, name in enumerate(heat.rows)}
    assert all(abs(places[f"{a}1"] - places[f"{a}2"]) == 1 for a in "abc")
    assert all(np.isnan(heat.z[i][i]) for i in range(6))
    top = {(row[0][:2], row[0][-2:]) for row in items["task-interaction-pairs-pairs"].rows[:3]}
    assert top == {("a1", "a2"), ("b1", "b2"), ("c1", "c2")}
    page = rp.report([quick.path], tmp_path / "page.html").read_text()
    assert "a1" in page and len(rp.figures([quick.path], tmp_path / "figures")) == 7


def test_papers_values_stand_beside_its_data(tmp_path):
    """And a run that leaks says so."""
    with Records(tmp_path / "run", {"experiment": "task-interaction", "T": 100}) as records:
        records.add(kind="classes", data="cifar10", names=["a", "b"], source="features of X")
        label = dict(data="cifar10", rule="Reverse(K=5)", trial=0)
        records.add(kind="evaluation", **label, step=0, cosine=1.0, test_accuracy=0.1)
        done = dict(best_step=25, test_accuracy=0.6, validation_accuracy=0.5)
        records.add(kind="stop", **label, step=50, **done, criterion="test_accuracy")
    (table,) = sections([load(tmp_path / "run")])[0].items
    assert table.rows == (
        ("5", "60.00", "61.33 ± 1.08", "25", "4950", spread([], 2), "1.3", "50.00", "10.00", "1"),
    )
    assert any("too high" in note for note in table.notes)
    shown = sections([load(tmp_path / "run")])
    assert "features of X" in shown[0].text[1] and not shown[2].items


def test_stall(tmp_path):
    """A trial stops where it stalls; what comes later, or again, changes nothing."""
    lam = lambda step: {"B": np.full((2, 3), float(step)), "nu": np.full(2, float(step))}
    first = np.array([0.5, 0.5])
    begin = lambda: Stall(tmp_path / "best.npz", lam(0), first, 20)
    stall = begin()
    for step, score in [(10, [0.6, 0.5]), (20, [0.7, 0.5]), (30, [0.7, 0.9])]:
        stall.see(step, np.array(score), lam(step))
    assert stall.best.tolist() == [20, 0] and stall.stalled.tolist() == [False, True]
    stall.see(20, np.array([9.0, 9.0]), lam(20))  # passed over again
    again = begin()  # from its file
    again.see(40, np.array([0.7, 0.9]), lam(40))
    assert again.stalled.all() and again.ends.tolist() == [40, 20]
    assert again.score.tolist() == [0.7, 0.5]
    assert again.lam["B"][:, 0].tolist() == [20, 0] and again.lam["nu"].tolist() == [20, 0]


def test_resumes(quick, tmp_path, monkeypatch):
    """From what a kill leaves on disk, then from an interrupt: the records nobody disturbed."""
    out = tmp_path / "killed"
    shutil.copytree(quick.path.with_name("at 25"), out)
    see, announce = Stall.see, program.announce

    def interrupted(stall, step, score, lam):
        see(stall, step, score, lam)
        if step == 50:
            raise KeyboardInterrupt

    def first_rule_alone(text):
        announce(text)
        if "K=50" in text:
            raise KeyboardInterrupt

    monkeypatch.setattr(program, "announce", first_rule_alone)
    for times, hook in enumerate((interrupted, see)):
        monkeypatch.setattr(Stall, "see", hook)
        with pytest.raises(KeyboardInterrupt):
            run(SMALL, out, resume=True)
        steps = {row["step"] for row in load(out).of("evaluation")}
        assert max(steps) == [50, 75][times]
    for kind in ("classes", "evaluation", "stop", "interaction"):
        rule = {} if kind == "classes" else {"rule": "Reverse(K=1)"}
        assert load(out).of(kind, **rule) == quick.of(kind, **rule) != []


def test_stop_on_test_is_for_this_experiment():
    configure = find("task-interaction").configure
    config = configure("paper", {"stop_on_test": True})
    assert config.stop_on_test and config.criterion == "test_accuracy"
    assert not configure("paper").stop_on_test
    assert configure("paper", {"steps": 7}).steps == (7, 7)
    result = CliRunner().invoke(app, ["run", "toy", "--stop-on-test"])
    assert str(result.exception) == "experiment toy has no stop_on_test to choose; leave it out."


def test_features_are_centred_and_scaled():
    x = prepared(rng.random((50, 7)).astype(np.float32), 3.0)
    np.testing.assert_allclose(x[:, :-1].mean(0), 0, atol=1e-5)
    np.testing.assert_allclose(np.sqrt((x[:, :-1] ** 2).sum(1).mean()), 3, rtol=1e-5)
    assert (x[:, -1] == 1).all()
    with pytest.raises(ValueError, match="give one of cifar10"):
        sample("cifar", None, 10, 1, 1.0, 0)


def test_sample():
    """No example is in two parts of a trial, and trials differ."""
    found = sample("pairs", None, 12, 2, 4.0, 0)
    assert found.S.y.shape == found.S.y_val.shape == (2, 12)
    assert (np.bincount(found.S.y[0]) == 2).all()
    assert np.asarray(found.test).sum(1).tolist() == [1200 - 24] * 2
    assert (np.asarray(found.test[0]) != np.asarray(found.test[1])).any()
    np.testing.assert_allclose(found.S.gram[1], found.X[1] @ found.X[1].T, rtol=1e-5)
