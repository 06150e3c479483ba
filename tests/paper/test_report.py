"""Records to tables, figures and a page: what is shown, what is refused, what is escaped."""

import csv
import json
import math
import os
import re
from statistics import mean, stdev

import jax.numpy as jnp
import numpy as np
import pytest
import synthetic
from typer.testing import CliRunner

from bilevax._pictures.cards import Cards
from bilevax.cli import main
from bilevax.cli._app import app
from bilevax.paper import report as rp
from bilevax.paper.experiments import toy
from bilevax.paper.experiments.hypercleaning import figures as hypercleaning
from bilevax.paper.experiments.hypercleaning.examples import examples
from bilevax.paper.page.browser import to_json
from bilevax.paper.page.table import spread
from bilevax.paper.records import Records, RunError, load
from bilevax.paper.report import Axis, Chart, Column, Series, Table, pages
from bilevax.paper.report.groups import depth

ATTACK = "<img src=x onerror=alert(1)>"
CLOSING = "</script><script>alert(2)</script>"


@pytest.fixture(autouse=True)
def _no_disk(monkeypatch):
    monkeypatch.setattr(os, "fsync", lambda file: None)


@pytest.fixture
def no_pictures(monkeypatch):
    """Where the claim is not about them: each takes half a second."""
    monkeypatch.setattr(pages, "png", lambda chart: b"")


@pytest.fixture(scope="module")
def toy_run(tmp_path_factory):
    path = tmp_path_factory.mktemp("runs") / "toy"
    synthetic.write_toy(path, steps=30, size=21)
    return path


def cleaning(tmp_path, **settings):
    path = tmp_path / f"run-{len(list(tmp_path.iterdir()))}"
    synthetic.write_cleaning(path, **settings)
    return path


def items(sections, kind):
    return {item.name: item for s in sections for item in s.items if isinstance(item, kind)}


def table_of(sections, name):
    table = items(sections, Table)[name]
    heads = [column.name for column in table.columns]
    return [list(zip(heads, row, strict=True)) for row in table.rows], table


def test_toy_shows_the_papers_figures(toy_run):
    sections = toy.sections([load(toy_run)])
    charts = items(sections, Chart)
    assert [s.title[:9] for s in sections] == [f"Figure {i}." for i in range(1, 5)]
    assert len(charts) == 10
    bound, local, error = charts["toy-bias"].series
    assert error.y == [row["bias"] for row in load(toy_run).of("bias")]
    assert bound.dashed and not error.dashed
    low, high = charts["toy-bias"].y.limits
    assert max(bound.y) < high < max(local.y) and low < min(filter(None, error.y))
    shown = json.loads(to_json(charts["toy-bias"]))["layout"]["yaxis"]["range"]
    assert shown == [math.log10(low), math.log10(high)]
    assert charts["toy-bias"].lost == 1  # K = T, no error: log has no place for it
    labels = [series.label for series in charts["toy-path-f-tilde"].series]
    assert labels == ["1", "2", "5", "10", "25", "100", "optimum"]
    assert charts["toy-path-f"].arrows and not charts["toy-path-f-tilde"].arrows


def test_arrows_descend(toy_run):
    arrows = items(toy.sections([load(toy_run)]), Chart)["toy-path-f"].arrows
    for x, y, dx, dy in zip(arrows.x, arrows.y, arrows.dx, arrows.dy, strict=True):
        gradient = synthetic.toy_h([x, y] * synthetic.np.ones(2), synthetic.T)
        cosine = -(gradient @ [dx, dy]) / math.hypot(*gradient) / math.hypot(dx, dy)
        assert cosine == pytest.approx(1)


def test_the_surface_of_the_other_objective(toy_run):
    """f̃ is not recorded; its contours are computed from those of f."""
    contour = items(toy.sections([load(toy_run)]), Chart)["toy-path-f-tilde"].contour
    point = synthetic.np.array([contour.x[2], contour.y[1]])
    assert contour.z[1][2] == pytest.approx(synthetic.toy_f(point, 5.0))


def test_one_colour_for_each_K(toy_run):
    charts = items(toy.sections([load(toy_run)]), Chart).values()
    pairs = {(s.label, s.colour) for c in charts if c.legend == "K" for s in c.series}
    assert len(pairs) == len({label for label, _ in pairs}) == len({c for _, c in pairs}) == 7


def test_table_2(tmp_path):
    """Mean and deviation over seeds, by hand; the paper's values beside them."""
    paths = [cleaning(tmp_path, seed=seed) for seed in range(3)]
    runs = [load(path) for path in paths]
    rows, table = table_of(hypercleaning.sections(runs), "hypercleaning-table2")
    ends = [run.of("evaluation", rule="Reverse(K=5)", step=1000)[0] for run in runs]
    mean = sum(100 * row["test_accuracy"] for row in ends) / 3
    deviation = math.sqrt(sum((100 * row["test_accuracy"] - mean) ** 2 for row in ends) / 2)
    assert [row[0][1] for row in rows] == ["1", "5", "25", "100", "Krylov(2, 4)"]
    assert rows[1][1] == ("test acc. %", f"{mean:.2f} ± {deviation:.2f}")
    assert [value for head, value in rows[1] if head == "paper"] == list(hypercleaning.PAPER[5])
    assert [value for head, value in rows[4] if head == "paper"] == [""] * 4
    assert rows[1][-2:] == [("step", "1000"), ("seeds", "3")]
    assert table.notes == ("Mean ± standard deviation over seeds.",)


def test_differences_are_paired_by_seed(tmp_path):
    """By hand, with a seed that stopped early and one that has not every rule; none of one seed."""
    runs = [load(cleaning(tmp_path, seed=seed)) for seed in range(3)]
    runs.append(load(cleaning(tmp_path, seed=3, stop=100)))
    runs.append(load(cleaning(tmp_path, seed=4, rules=["Reverse(K=5)"])))
    rows, table = table_of(hypercleaning.sections(runs), "hypercleaning-differences")
    ends = lambda rule: [
        row["validation_loss"]
        for run in runs[:3]
        for row in run.of("evaluation", rule=rule, step=1000)
    ]
    apart = [a - b for a, b in zip(ends("Reverse(K=5)"), ends("Reverse(K=100)"), strict=True)]
    assert [row[0][1] for row in rows] == ["1", "5", "25", "Krylov(2, 4)"]
    assert rows[1][3] == ("val. loss", f"{mean(apart):+.3f} ± {stdev(apart):.3f}")
    assert rows[1][-1] == ("seeds", "3") and "minus that of K = 100" in table.notes[0]
    assert "hypercleaning-differences" not in items(hypercleaning.sections(runs[:1]), Table)


def test_F1_at_150_if_it_is_there(tmp_path):
    there = hypercleaning.sections([load(cleaning(tmp_path))])
    rows, _ = table_of(there, "hypercleaning-f1-150")
    assert rows[0][-2:] == [("step", "150"), ("seeds", "1")]
    other = hypercleaning.sections([load(cleaning(tmp_path, every=100))])
    assert "hypercleaning-f1-150" not in items(other, Table)
    assert "hypercleaning-f1-end" in items(other, Table)


def test_cost_is_relative_to_forward(tmp_path):
    run = load(cleaning(tmp_path))
    rows, _ = table_of(hypercleaning.sections([run]), "hypercleaning-cost")
    cost = run.of("cost", rule="Reverse(K=1)")[0]
    assert rows[0][2][1] == f"{cost['seconds'] / 0.35:.2f}"
    assert rows[0][3] == ("MB", "3.0")


def test_killed_runs_say_where_they_stop(tmp_path):
    paths = [cleaning(tmp_path), cleaning(tmp_path, seed=1, stop=100, cost=False)]
    with open(paths[1] / "records.jsonl", "ab") as file:
        file.write(b'{"kind": "evaluation", "rule": "Rev')  # torn
    rows, table = table_of(hypercleaning.sections(map(load, paths)), "hypercleaning-table2")
    assert all(row[-1] == ("seeds", "1") for row in rows)
    rules = ", ".join(synthetic.RULES)
    assert table.notes[-1] == f"Seed 1 stops at hyper-iteration 100 of 1000: {rules}."
    rp.report(paths, tmp_path / "page.html")


@pytest.mark.parametrize("experiment", ["toy", "hypercleaning", "new", ""])
def test_a_run_without_records(tmp_path, experiment):
    Records(tmp_path / "run", {"experiment": experiment}).close()
    page = rp.report([tmp_path / "run"], tmp_path / "page.html").read_text()
    assert "0" in page and "Runs, machines and versions" in page
    assert rp.figures([tmp_path / "run"], tmp_path / "figures")


@pytest.mark.parametrize("kinds", [1, 7, 30, 200])
def test_a_toy_run_cut_anywhere(toy_run, tmp_path, kinds):
    lines = (toy_run / "records.jsonl").read_bytes().splitlines(keepends=True)
    Records(tmp_path / "run", load(toy_run).config).close()
    (tmp_path / "run" / "records.jsonl").write_bytes(b"".join(lines[:kinds]) + lines[kinds][:9])
    rp.report([tmp_path / "run"], tmp_path / "page.html")


def test_nan_is_shown_and_counted(tmp_path):
    path = tmp_path / "run"
    with Records(path, {"experiment": "hypercleaning", "T": 100}) as records:
        for step, value in enumerate([1.0, math.nan, math.inf, -1.0, 2.0]):
            records.add(
                kind="evaluation", rule="Reverse(K=1)", seed=0, step=step,
                gradient_norm=value, test_accuracy=math.nan,
            )  # fmt: skip
    sections = hypercleaning.sections([load(path)])
    rows, _ = table_of(sections, "hypercleaning-table2")
    assert rows[0][1] == ("test acc. %", "nan")
    chart = items(sections, Chart)["hypercleaning-gradient"]
    assert chart.lost == 3 and "3 points are not finite, or not positive" in chart.text
    page = rp.report([path], tmp_path / "page.html").read_text()
    for block in re.findall(r'<script type="application/json">(.*?)</script>', page):
        json.loads(block, parse_constant=pytest.fail)  # NaN is no JSON
    rp.figures([path], tmp_path / "figures")


def test_two_runs_of_one_seed_are_refused(tmp_path):
    paths = [cleaning(tmp_path), cleaning(tmp_path)]
    with pytest.raises(RunError, match=r"both hold Reverse\(K=1\) with seed 0; give one of them"):
        rp.report(paths, tmp_path / "page.html")
    rp.report([paths[0], paths[0]], tmp_path / "page.html")  # the same folder, once


def test_rules_in_several_runs_and_other_settings(tmp_path):
    paths = [cleaning(tmp_path, rules=[rule]) for rule in synthetic.RULES]
    paths.append(cleaning(tmp_path, data="digits", preset="quick"))
    sections = hypercleaning.sections(list(map(load, paths)))
    assert [s.title for s in sections[1::5]] == [
        "Comparison of the rules (Table 2) (mnist, paper)",
        "Comparison of the rules (Table 2) (digits, quick)",
    ]
    assert len(table_of(sections, "hypercleaning-table2")[0]) == 5


def test_damaged_values_are_errors(tmp_path):
    for i, row in enumerate([{"rule": 3}, {"rule": "Reverse()", "seed": 0, "step": 1.5}]):
        with Records(tmp_path / str(i), {"experiment": "hypercleaning"}) as records:
            records.add(kind="evaluation", **row)
        with pytest.raises(RunError, match="a record of kind evaluation has (rule|step) = "):
            rp.report([tmp_path / str(i)], tmp_path / "page.html")
    assert not (tmp_path / "page.html").exists()


LONG = "9" * 400


@pytest.mark.parametrize("depth", [15, 500, 900, 990, 100_000])
@pytest.mark.parametrize("file", ["records.jsonl", "env.json", "config.toml"])
def test_deep_values_are_shown_or_refused(tmp_path, file, depth, experiment="hypercleaning"):
    deep = "[" * depth + "]" * depth
    lines = {
        "records.jsonl": f'{{"kind": "evaluation", "rule": "Reverse()", "step": {deep}}}\n',
        "env.json": f'{{"processor": {deep}}}',
        "config.toml": f'experiment = "{experiment}"\nT = {deep}\n',
    }
    Records(tmp_path / "run", {"experiment": experiment}).close()
    (tmp_path / "run" / file).write_text(lines[file])
    try:
        rp.Report([tmp_path / "run"]).write(tmp_path / "page.html")
    except RunError as error:
        assert depth > 15 or "it must be" in str(error)
    else:
        assert depth == 15


@pytest.mark.parametrize("name", ["step", "seed", "test_accuracy", "seconds", "K", "y", "names"])
@pytest.mark.parametrize("value", [LONG, f"-{LONG}", "1" * 5000, "1e999", f"[{LONG}]"])
def test_numbers_without_end(tmp_path, name, value):
    """Shown, or refused in one short sentence, whatever the experiment makes of them."""
    row = {"rule": '"Reverse()"', "seed": 0, "step": 0, "data": '"x"', "source": '"x"'} | {
        name: value
    }
    text = ", ".join(f'"{k}": {v}' for k, v in row.items())
    kinds = ("evaluation", "cost", "depth", "surface", "iterate", "bias", "classes", "stop")
    for experiment in ("toy", "hypercleaning", "task-interaction", "one-shot", "x"):
        path = tmp_path / experiment
        Records(path, {"experiment": experiment}).close()
        lines = [f'{{"kind": "{kind}", {text}}}\n' for kind in kinds]
        (path / "records.jsonl").write_text("".join(lines))
        try:
            _ = rp.Report([path]).sections
        except RunError as error:
            assert len(str(error)) < 400


def test_figures_and_tables(toy_run, tmp_path):
    paths = [toy_run, cleaning(tmp_path, seed=1), cleaning(tmp_path, seed=2)]
    folder = tmp_path / "figures"
    files = rp.figures(paths, folder)
    assert sum(path.suffix == ".png" for path in files) == 14
    assert sorted(files) == sorted(folder.iterdir())
    assert "| 5 | " in (folder / "tables.md").read_text()
    text = (folder / "hypercleaning-table2.csv").read_text()
    rows = list(csv.DictReader(text.splitlines()))
    assert len(rows) == 5 and rows[0]["K"] == "1"
    for path in files[1:]:
        assert path.suffix != ".png" or path.read_bytes().startswith(b"\x89PNG")
    Records(tmp_path / "empty", {"experiment": "x"}).close()
    assert rp.figures([tmp_path / "empty"], folder)  # its own folder, again


def test_nothing_of_others_is_overwritten(toy_run, tmp_path):
    page, folder = tmp_path / "page.html", tmp_path / "figures"
    page.write_text("<p>mine</p>")
    with pytest.raises(ValueError, match="page.html is not a report of bilevax; give another"):
        rp.report([toy_run], page)
    folder.mkdir()
    (folder / "mine.png").touch()
    with pytest.raises(ValueError, match="holds files that are not a report's"):
        rp.figures([toy_run], folder)
    with pytest.raises(ValueError, match="is a folder"):
        rp.report([toy_run], folder)
    assert page.read_text() == "<p>mine</p>" and os.listdir(folder) == ["mine.png"]


def test_a_page_is_written_whole_or_not_at_all(toy_run, tmp_path, monkeypatch):
    page = rp.report([toy_run], tmp_path / "page.html")
    before = page.read_bytes()
    monkeypatch.setattr(os, "replace", lambda *paths: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        rp.report([toy_run], page)
    assert page.read_bytes() == before and os.listdir(tmp_path) == ["page.html"]


@pytest.mark.usefixtures("no_pictures")
def test_command(tmp_path, monkeypatch, capsys):
    out, folder = tmp_path / "deep" / "page.html", tmp_path / "figures"
    run = cleaning(tmp_path, rules=["Reverse(K=5)"])
    arguments = ["report", str(run), "-o", str(out), "--figures", str(folder)]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    assert out.exists() and (folder / "tables.md").exists()
    monkeypatch.setattr("sys.argv", ["bilevax", "report", str(tmp_path), "-o", str(out)])
    with pytest.raises(SystemExit) as end:
        main()
    assert end.value.code == 1
    assert re.fullmatch(r"bilevax: \S+ is not a run: .*\n", capsys.readouterr().err)


def test_markup_is_text(tmp_path):
    table = Table("t", ATTACK, (Column(ATTACK),), ((CLOSING + "|\n|",),), (ATTACK,))
    assert "<img" not in table.html() and "<script" not in table.html()
    lines = table.markdown().splitlines()
    assert "<img" not in table.markdown() and "\\| \\| |" in lines[4]
    chart = Chart("c", ATTACK, ATTACK, Axis(ATTACK), Axis("y"), (Series([1], [1], CLOSING),))
    page = rp.Page(ATTACK, CLOSING, (rp.Section(ATTACK, (CLOSING,), (chart, table)),)).html()
    assert ATTACK not in page and CLOSING not in page
    assert page.count("</script>") == 3 + page[: page.index("</main>")].count("</script>") - 1


def test_no_address_is_fetched(toy_run, tmp_path):
    page = rp.report([toy_run], tmp_path / "page.html").read_text()
    assert not re.search(r"<(link|iframe|img)\b|<script[^>]+src", page[: page.index("<main>")])
    assert "default-src 'none'" in page and "unsafe-eval" not in page[:2000]


@pytest.mark.parametrize(
    "rule, K",
    [("Reverse(K=5)", 5), ("Reverse()", 100), ("Reverse", 100), ("Krylov(2, 4)", None),
     ("Reverse(K=5, segment=2)", None)],
)  # fmt: skip
def test_depth(rule, K):
    assert depth(rule, 100) == K


def test_no_cell_is_a_formula():
    evil = ('=HYPERLINK("http://x","y")', "+1+cmd|' /C calc'!A0", "@SUM(A1)", "-2+3", "\t=1")
    fine = ("-1.5", "+0.25 ± 0.1", "-2e-3", "nan", "Reverse(K=5)")
    text = Table("t", "t", tuple(map(Column, evil)), (evil, fine)).csv()
    heads, cells, kept = csv.reader(text.splitlines())
    assert heads == cells == ["'" + cell for cell in evil]
    assert tuple(kept) == fine


def test_spread():
    assert spread([], 2) == "\N{EN DASH}" and spread([1.0], 2) == "1.00"
    assert spread([1.0, 3.0], 2, "+") == "+2.00 ± 1.41" and spread([1e200, 3e200], 0)
    assert spread([1.0, 3.0], 2) == "2.00 ± 1.41" and spread([1.0, math.nan], 1) == "nan"


def test_examples_of_labels_are_shown(tmp_path):
    """Found, missed and wrongly accused, each with the label it had and the one proposed."""
    wrong = np.array([True, True, False, False])
    lam = np.array([-9.0, 2.0, -5.0, 1.0], np.float32)
    x = np.zeros((4, 10), np.float32)  # 3 x 3 pixels, and the input of the bias
    x[:, -1], x[0, 4] = 1.0, 1.0
    w = np.zeros((2, 10), np.float32)
    w[1, 4] = 3.0
    S = {"x": jnp.asarray(x), "y": np.array([0, 1, 1, 0]), "wrong": wrong}
    row = examples(jnp.asarray(lam), jnp.asarray(w), S)
    kinds = [row[f"{kind}_count"] for kind in ("found", "missed", "accused")]
    assert kinds == [1, 1, 1] and row["found_given"] == [0] and row["found_proposed"] == [1]
    with Records(tmp_path / "run", {"experiment": "hypercleaning", "T": 5, "train": 4}) as records:
        same = {"rule": "Reverse(K=5)", "seed": 0, "step": 10}
        records.add(kind="evaluation", **same, found=1, false=1, corrupted=2)
        records.add(kind="examples", **same, **row)
    first = hypercleaning.sections([load(tmp_path / "run")])[0]
    assert first.title == "1 of 2 wrong labels found, 1 right ones accused"
    assert [item.title for item in first.items if isinstance(item, Cards)] == [
        "Found: 1", "Missed: 1", "Wrongly accused: 1",
    ]  # fmt: skip
    html = rp.report([tmp_path / "run"], tmp_path / "page.html").read_text("utf-8")
    assert html.count('<img alt="" src="data:image/png') == 3 and ">0</span> → " in html
