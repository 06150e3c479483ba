"""One-shot learning: the network against other ways to write it, the tasks, the experiment."""

import dataclasses
import shutil
from contextlib import contextmanager
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from typer.testing import CliRunner

import bilevax as bx
from bilevax._models import convolution
from bilevax._models import one_shot as network
from bilevax._models.episodes import Sampler, Task
from bilevax.cli._app import app
from bilevax.paper.data import glyphs
from bilevax.paper.experiments import Experiment, find, one_shot
from bilevax.paper.experiments.one_shot import figures as shown
from bilevax.paper.experiments.one_shot import program, study
from bilevax.paper.page.table import spread
from bilevax.paper.records import load
from bilevax.paper.report import Chart

RESULTS = Path(__file__).parents[2] / "results" / "one-shot"
IMAGES = glyphs.load(characters=12, drawings=6)
TASK = eqx.filter_jit(Sampler(IMAGES, ways=3, shots=1, queries=2))(jax.random.key(0))
LAM = jax.jit(lambda key: network.first_lam(key, 3, 4, rho=0.1, gamma=0.2))(jax.random.key(1))
LAYER = convolution.first_layer(jax.random.key(2), 2, 3) | {
    "scale": jnp.array([0.5, 1.0, 2.0]),
    "shift": jnp.array([0.1, -0.2, 0.3]),
}
X = jax.random.normal(jax.random.key(3), (4, 7, 9, 2), float)
DIRECTION = jax.random.normal(jax.random.key(4), (4, 3, 4, 3), float)


def close(a, b, tolerance):
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=0, atol=tolerance), a, b)


def plain_block(layer, x):
    """Out of XLA's own convolution and window, and batch norm as it is defined."""
    kernel = layer["kernel"].reshape(3, 3, x.shape[-1], -1)
    numbers = ("NHWC", "HWIO", "NHWC")
    x = lax.conv_general_dilated(x, kernel, (1, 1), ((1, 1), (1, 1)), dimension_numbers=numbers)
    window = (1, 2, 2, 1)
    x = lax.reduce_window(x, -jnp.inf, lax.max, window, window, "VALID")
    mean = jnp.sum(x, (0, 1, 2), keepdims=True) / x[..., 0].size
    variance = jnp.sum((x - mean) ** 2, (0, 1, 2), keepdims=True) / x[..., 0].size
    x = (x - mean) / jnp.sqrt(variance + 1e-3)
    return jnp.maximum(layer["scale"][None, None, None] * x + layer["shift"][None, None, None], 0)


@pytest.mark.parametrize("accelerator", [False, True])
def test_block(accelerator, monkeypatch):
    """An odd side included, of which pooling drops the last row or column."""
    if accelerator:
        monkeypatch.setattr(jax, "default_backend", lambda: "gpu")

    def values(block):
        @jax.jit
        def both(layer, x):
            y, pull = jax.vjp(block, layer, x)
            return y, pull(DIRECTION)

        return both(LAYER, X)

    close(values(convolution.block), values(plain_block), 1e-10)


def test_block_against_pytorch():
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    nn = torch.nn.functional
    tensors = {k: torch.tensor(np.asarray(v), requires_grad=True) for k, v in LAYER.items()}
    x = torch.tensor(np.asarray(X.transpose(0, 3, 1, 2)), requires_grad=True)
    kernel = tensors["kernel"].reshape(3, 3, 2, 3).permute(3, 2, 0, 1)
    y = nn.max_pool2d(nn.conv2d(x, kernel, padding=1), 2)
    y = nn.batch_norm(y, None, None, tensors["scale"], tensors["shift"], training=True, eps=1e-3)
    y = torch.relu(y).permute(0, 2, 3, 1)
    (y * torch.tensor(np.asarray(DIRECTION))).sum().backward()
    close(convolution.block(LAYER, X), y.detach().numpy(), 1e-10)
    project = lambda layer, x: jnp.vdot(DIRECTION, convolution.block(layer, x))
    layer, inputs = jax.grad(project, (0, 1))(LAYER, X)
    close(layer, {k: v.grad.numpy() for k, v in tensors.items()}, 1e-10)
    close(inputs, x.grad.numpy().transpose(0, 2, 3, 1), 1e-10)


@pytest.mark.slow
def test_whole_loop():
    """Full back-propagation against jax.grad of a Python loop that prepares nothing."""
    T = 3

    def logits(w, base, x):
        for layer in (base["conv1"], base["conv2"], w["conv3"], w["conv4"]):
            x = plain_block(layer, x if x.ndim == 4 else x[..., None])
        return x[:, 0, 0] @ w["linear"]["kernel"] + w["linear"]["shift"][None]

    def inner(w, lam):
        loss = -jax.nn.log_softmax(logits(w, lam["base"], TASK.x))[np.arange(3), TASK.y].mean()
        pulls = [
            jnp.exp(lam["rho"][name]) * jnp.sum((a - lam["c"][name][k]) ** 2)
            for name, part in w.items()
            for k, a in part.items()
        ]
        return loss + sum(pulls)

    def outer(lam):
        w = lam["c"]
        for _ in range(T):
            step = jax.grad(inner)(w, lam)
            w = jax.tree.map(lambda a, b: a - jnp.exp(lam["gamma"]) * b, w, step)
        chosen = jax.nn.log_softmax(logits(w, lam["base"], TASK.x_val))
        return -chosen[np.arange(6), TASK.y_val].mean()

    found = bx.hypergradient(network.f, network.dynamics(), bx.Reverse(), T=T)(LAM, TASK)
    value, wanted = jax.jit(jax.value_and_grad(outer))(LAM)
    np.testing.assert_allclose(found.value, value, rtol=1e-10)
    close(found.h, wanted, 1e-8)
    assert all(float(jnp.max(jnp.abs(a))) > 0 for a in jax.tree.leaves(wanted))


def test_no_character_in_two_parts():
    parts = study.split(np.arange(20)[:, None], (12, 3), seed=1)
    assert sorted(np.concatenate(parts)[:, 0]) == list(range(20))
    assert [len(part) for part in parts] == [12, 3, 5]
    with pytest.raises(ValueError, match="20 characters cannot be split"):
        study.split(np.arange(20)[:, None], (12, 8), seed=1)


def test_tasks():
    """Every pixel says of which character and drawing it is."""
    images = np.arange(10 * 9, dtype=np.uint8).reshape(10, 9, 1, 1) * np.ones((2, 2), np.uint8)
    draw = eqx.filter_jit(Sampler(images, ways=4, shots=2, queries=5))
    for seed in range(5):
        task = draw(jax.random.key(seed))
        whose = lambda x: np.rint(np.asarray(x)[:, 0, 0] * 255).astype(int)
        support, query = whose(task.x), whose(task.x_val)
        assert not set(support) & set(query) and len({*support, *query}) == 4 * 7
        characters = support[::2] // 9
        assert len(set(characters)) == 4
        assert (support // 9 == characters[task.y]).all()
        assert (query // 9 == characters[task.y_val]).all()
        again = draw(jax.random.key(seed))
        assert all((a == b).all() for a, b in zip(task, again, strict=True))
    assert (whose(draw(jax.random.key(7)).x) != support).any()


def test_glyphs():
    again, other = glyphs.load(12, 6), glyphs.load(12, 6, seed=1)
    assert (again == IMAGES).all() and (other != IMAGES).any()
    assert IMAGES.shape == (12, 6, 28, 28) and IMAGES.dtype == np.uint8 and IMAGES.max() == 255
    mean = IMAGES.astype(float).mean(1)
    near = ((IMAGES[:, :, None] - mean[None, None]) ** 2).sum((-1, -2))
    assert 0.8 < np.mean(near.argmin(2) == np.arange(12)[:, None]) <= 1  # a character is a class


TINY = dataclasses.replace(
    one_shot.Config.quick(), rules=("Reverse(K=5)",), steps=40, every=20, episodes=20
)


@pytest.mark.slow
def test_learns(tmp_path):
    """The network itself, which takes long to compile; the other tests have a linear one."""
    one_shot.run(TINY, tmp_path / "run")
    run = load(tmp_path / "run")
    rows = run.of("evaluation", rule="Reverse(K=5)")
    assert [row["step"] for row in rows] == [0, 20, 40]
    assert rows[-1]["test_accuracy"] > 1 / 5 + 0.4  # five ways
    assert rows[-1]["test_accuracy"] > rows[0]["test_accuracy"] + 0.08
    assert rows[-1]["validation_loss"] < rows[0]["validation_loss"]
    assert all(0 < row["cosine"] < 0.999 and row["gamma"] > 0 for row in rows)
    for objective in ("regularised", "rho = 0", "rho = 0.25"):
        errors = [row["error"] for row in run.of("depth", objective=objective)]
        assert len(errors) == 10 and errors[-1] < errors[0]


@contextmanager
def linear():
    """The experiment with a linear layer on pixels in place of the network."""

    def first_lam(key, ways, filters, rho, gamma):
        base = {"scale": jnp.ones(())}
        c = {"linear": {"kernel": 0.1 * jax.random.normal(key, (784, ways), float)}}
        log = lambda value: jnp.log(jnp.asarray(value, float))
        return {"base": base, "c": c, "rho": {"linear": log(rho)}, "gamma": log(gamma)}

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(study, "first_lam", first_lam)
        patch.setattr(network, "patches", lambda x: x)
        patch.setattr(
            network, "represent", lambda lam, x: lam["base"]["scale"] * x.reshape(len(x), -1) / 10
        )
        patch.setattr(network, "classify", lambda w, P: P @ w["linear"]["kernel"])
        yield


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    out = tmp_path_factory.mktemp("one-shot") / "run"
    with linear():
        one_shot.run(TINY, out)
    return load(out)


def test_records(run):
    rows = run.of("evaluation", rule="Reverse(K=5)")
    assert [row["step"] for row in rows] == [0, 20, 40]
    assert rows[-1]["test_accuracy"] > 1 / 5 + 0.1
    assert rows[-1]["validation_loss"] < rows[0]["validation_loss"]
    assert all(0 < row["cosine"] < 0.99999 and row["gamma"] > 0 for row in rows)
    assert run.of("cost", rule="Reverse(K=5)")[0]["seconds"] > 0
    (final,) = run.of("final", rule="Reverse(K=5)")
    assert (final["step"], final["tasks"]) == (40, 200)
    assert abs(final["test_accuracy"] - rows[-1]["test_accuracy"]) < 0.1
    assert 0.002 < final["standard_error"] < 0.02
    for objective in ("regularised", "rho = 0", "rho = 0.25"):
        rows = run.of("depth", rule="Reverse(K=5)", objective=objective)
        assert [row["K"] for row in rows] == list(range(1, 11))
        assert rows[-1]["error"] < rows[0]["error"]


@pytest.mark.slow
def test_bias_decays_with_depth_where_steps_contract():
    """Regularised, by Prop. 3.1: geometrically. Wide kernels, since the batch norm after them
    makes the loss the flatter the wider they are.
    """
    wide = lambda name, a: 4.0 * a if name == "kernel" else a
    c = {n: {k: wide(k, a) for k, a in layer.items()} for n, layer in LAM["c"].items()}
    xi = network.dynamics()

    def errors(rho):
        logs = jax.tree.map(lambda a: jnp.log(rho), LAM["rho"])
        lam = LAM | {"c": c, "rho": logs, "gamma": jnp.log(0.1)}
        return bx.diagnose(network.f, xi, lam, TASK, T=10, lanczos=0).error

    strong, none = errors(2.0), errors(1e-9)
    assert (np.diff(strong) < 0).all() and strong[8] < 0.25 * strong[0]
    assert none[8] > 0.7 * none[0]


def with_short_horizon(run):
    """As if T = 1 had been run too."""
    rows = [row | {"rule": "T=1"} for row in run.of("evaluation")]
    return dataclasses.replace(run, rows=[*run.rows, *rows])


def test_report(run):
    run = with_short_horizon(run)
    sections = shown.sections([run])
    (table,) = sections[0].items
    assert [row[0] for row in table.rows] == ["5", "T=1"]
    accuracy = 100 * run.of("evaluation", rule="T=1")[-1]["test_accuracy"]
    final = 100 * run.of("final")[0]["test_accuracy"]
    assert table.columns[2].name == "on 200 tasks"
    assert table.rows[0][2:4] == (f"{final:.2f}", "40")
    assert table.rows[1][1:4] == (f"{accuracy:.1f}", spread([], 2), "40")
    assert "paper, 5K" not in [column.name for column in table.columns]  # other data
    charts = {item.name: item for item in sections[1].items if isinstance(item, Chart)}
    assert list(charts) == [f"one-shot-{x}" for x in ("accuracy", "loss", "cosine", "depth")]
    assert [series.label for series in charts["one-shot-cosine"].series] == ["5"]
    assert len(charts["one-shot-depth"].series) == 3


def test_report_of_the_paper(run):
    """With the paper's data, its values stand beside ours; runs of two lengths share a table."""
    run = with_short_horizon(run)
    config = run.config | {"data": "omniglot", "T": 50}
    short = dataclasses.replace(run, config=config)
    rows = [row | {"rule": "Reverse(K=10)"} for row in run.of("evaluation", rule="T=1")]
    long = dataclasses.replace(run, config=config | {"steps": 15_000}, rows=rows)
    sections = shown.sections([long, short])
    (table,) = sections[0].items
    assert [row[0] for row in table.rows] == ["5", "T=1", "10"] and len(sections) == 3
    assert table.rows[1][-3:] == ("", "96.6", "0.1") and table.rows[2][-3:] == shown.PAPER["10"]
    assert table.notes[1:] == ("Seed 0 stops at hyper-iteration 40 of 15000: Reverse(K=10).",)
    assert table.notes[0].startswith("The last λ is also judged on 200 test tasks, with a standard")


def test_report_of_several_seeds(run):
    """Mean, deviation and a band, in the table and in every chart; differences by seed."""
    moved = ("test_accuracy", "error", "validation_loss")
    deep = [row | {"rule": "Reverse()"} for row in run.of("evaluation")]
    first = dataclasses.replace(run, rows=[*run.rows, *deep])
    rows = [row | {"seed": 1} | {k: row[k] + 0.01 for k in moved if k in row} for row in first.rows]
    other = dataclasses.replace(run, rows=rows, path=Path("other"))
    quality, figure = shown.sections([first, other])
    table, apart = quality.items
    ends = [one.of("evaluation", rule="Reverse(K=5)")[-1] for one in (first, other)]
    assert table.rows[0][1] == spread([100 * row["test_accuracy"] for row in ends], 1)
    assert table.rows[0][-1] == "2"
    assert apart.rows == (("5", "+0.00 ± 0.00", "+0.0000 ± 0.0000", "2"),)
    assert len(figure.items) == 4
    assert all(line.low is not None for chart in figure.items for line in chart.series)


def test_lines_of_accuracy_fill_their_chart():
    """At paper scale, where the start is thirty points below all that can be told apart."""
    sections = shown.sections([load(RESULTS)])
    (chart,) = (item for item in sections[1].items if item.name == "one-shot-accuracy")
    low, high = chart.y.limits
    assert len(chart.series) >= 4
    for line in chart.series:
        assert line.y[0] < low < min(line.y[1:]) and max(line.y) < high


def test_resumes(run, tmp_path):
    """Cut in the middle of a record, without its last checkpoint: it ends as if it were not."""
    shutil.copytree(run.path, tmp_path / "cut")
    rows = tmp_path / "cut" / "records.jsonl"
    whole = rows.read_bytes().splitlines(keepends=True)
    rows.write_bytes(b"".join(whole[:2]) + whole[2][:20])
    saved = (tmp_path / "cut" / "checkpoints").glob("*/bilevax-*.npz")
    max(saved, key=lambda p: int(p.stem.split("-")[1])).unlink()
    with linear():
        one_shot.run(TINY, tmp_path / "cut", resume=True)
    again = load(tmp_path / "cut")
    for kind in ("evaluation", "depth"):
        assert again.of(kind) == run.of(kind)


def test_settings(tmp_path, monkeypatch):
    assert find("one-shot").configure("paper", {"steps": 15_000}).steps == 15_000
    assert program.read_rule("T=1") == (bx.Reverse(), 1)
    assert program.read_rule("Krylov(2, 4)") == (bx.Krylov(2, 4), None)
    monkeypatch.chdir(tmp_path)
    for arguments, message in {
        ("one-shot", "--rule", "T=0"): "cannot be read",
        ("one-shot", "--rule", "Nothing()"): "names no rule",
        ("hypercleaning", "--rule", "T=1"): "cannot be read",
    }.items():
        error = CliRunner().invoke(app, ["run", *arguments]).exception
        assert isinstance(error, ValueError) and message in str(error)
    assert not list(tmp_path.iterdir())
    with pytest.raises(ValueError, match="data 'mnist' is not known; give one of omniglot, glyphs"):
        study.load(dataclasses.replace(TINY, data="mnist"))


def test_steps_are_refused_where_there_are_none():
    @dataclasses.dataclass(frozen=True)
    class Config:
        T: int = 3

    mine = Experiment("mine", "without steps", {"quick": Config()}, run=print)
    with pytest.raises(ValueError, match="experiment mine has no steps to choose"):
        mine.configure("quick", {"steps": 3})
    with pytest.raises(ValueError, match="preset 'paper' is not known; give one of quick"):
        mine.configure("paper")


def test_rates():
    """Logarithms move a tenth as fast; all slow down."""
    adam = network.slowing_adam(10, 0.1)
    state, ones, next_ = adam.init(LAM), jax.tree.map(jnp.ones_like, LAM), jax.jit(adam.update)
    sizes = []
    for _ in range(10):
        with jax.numpy_dtype_promotion("standard"):  # optax mixes dtypes on purpose
            update, state = next_(ones, state, LAM)
        sizes.append((float(-update["base"]["conv1"]["shift"][0]), float(-update["gamma"])))
    fast, slow = np.array(sizes).T
    np.testing.assert_allclose(slow, fast / 10, rtol=1e-6)
    assert 0.09 < fast[0] <= 0.11 and (np.diff(fast) < 0).all() and fast[-1] < 0.02


def test_a_task_is_what_the_network_takes():
    assert isinstance(TASK, Task) and TASK.x.shape == (3, 28, 28) and TASK.x.dtype == jnp.float64
    assert float(TASK.x.min()) >= 0 and float(TASK.x.max()) == 1.0
