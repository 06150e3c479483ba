"""The front door: names, imports, citations, README, and the house rules."""

import ast
import contextlib
import importlib.util
import io
import os
import pathlib
import re
import subprocess
import sys
import warnings

import jax
import lineax as lx
import pytest

import bilevax as bx
from bilevax import problems

ROOT = pathlib.Path(__file__).parents[2]
SOURCE = ROOT / "src" / "bilevax"

CITED = [
    (bx.Reverse(), ["shaban2019", "franceschi2017"]),
    (bx.Reverse(K=5), ["shaban2019"]),
    (bx.Reverse(segment=5), ["shaban2019", "franceschi2017", "hascoet2006"]),
    (bx.Reverse(K=5, segment=2), ["shaban2019", "hascoet2006"]),
    (bx.Reverse(K=9, segment=(4, 2)), ["shaban2019", "hascoet2006", "griewank1992"]),
    (bx.Forward(), ["shaban2019", "franceschi2017"]),
    (bx.Implicit(), ["shaban2019", "pedregosa2016"]),
    (bx.Implicit(lx.LU()), ["shaban2019", "pedregosa2016"]),
    (bx.Neumann(K=3), ["shaban2019", "lorraine2020"]),
    (bx.AdaptiveReverse(0.1, 5), ["shaban2019"]),
    (bx.Krylov(), ["shaban2019", "saad1992"]),
    (bx.AdaptiveKrylov(), ["shaban2019", "saad1992"]),
]


@pytest.mark.parametrize("rule, keys", CITED, ids=lambda x: repr(x))
def test_citation(rule, keys):
    found = re.findall(r"@\w+\{([a-z]+\d+)", bx.citation(rule))
    assert found == keys


def printed(path, *, peers=False):
    """The code of a page, and what stands below it as its output, or an empty text.

    Blocks marked `python peer` need a library that may be missing.
    """
    mark = "(?: peer)?" if peers else ""
    pairs = rf"```python{mark}\n(.*?)```(?:\n\n```text\n(.*?)```)?"
    return re.findall(pairs, path.read_text(), re.S)


def blocks(path, *, peers=False):
    return [code for code, _ in printed(path, peers=peers)]


def run_page(path, *, peers=False):
    """The blocks of a page share one namespace, as a reader would run them."""
    space = {}
    with jax.enable_x64(False), jax.numpy_dtype_promotion("standard"):
        for code, output in printed(path, peers=peers):
            with contextlib.redirect_stdout(io.StringIO()) as said:
                exec(compile(code, str(path), "exec"), space)
            assert said.getvalue() == output or not output or path not in FRONT


PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
FRONT = [ROOT / "README.md", ROOT / "docs" / "index.md", ROOT / "docs" / "quickstart.md"]
WITH_CODE = [
    pytest.param(p, marks=[] if p in FRONT else pytest.mark.slow) for p in PAGES if blocks(p)
]
WITH_PEERS = [p for p in PAGES if "```python peer\n" in p.read_text()]


@pytest.mark.parametrize("path", WITH_CODE, ids=lambda p: p.relative_to(ROOT).as_posix())
def test_every_code_block_runs(path):
    run_page(path)


@pytest.mark.slow
@pytest.mark.parametrize("path", WITH_PEERS, ids=lambda p: p.name)
def test_every_peer_block_runs(path):
    """The whole page again, with the blocks of the other library, where that is installed."""
    tree = ast.parse("\n".join(blocks(path, peers=True)))
    names = {a.name for n in ast.walk(tree) if isinstance(n, ast.Import) for a in n.names}
    names |= {n.module for n in ast.walk(tree) if isinstance(n, ast.ImportFrom) and n.module}
    tops = sorted({name.split(".")[0] for name in names})
    if missing := [top for top in tops if importlib.util.find_spec(top) is None]:
        pytest.skip(f"{path.name} needs {', '.join(missing)}")
    with warnings.catch_warnings(), jax.numpy_rank_promotion("allow"):
        warnings.simplefilter("ignore")  # theirs, about versions of jax and torch
        run_page(path, peers=True)


@pytest.mark.slow
def test_the_tutorial_on_devices_divides_its_tasks():
    flags = os.environ.get("XLA_FLAGS", "") + " --xla_force_host_platform_device_count=4"
    code = "\n".join(blocks(ROOT / "docs" / "tutorials" / "devices.md"))
    done = subprocess.run(
        [sys.executable, "-c", code], env=os.environ | {"XLA_FLAGS": flags},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert "on 4 devices" in done.stdout


def test_the_readme_example_is_short():
    assert len([x for x in blocks(ROOT / "README.md")[0].splitlines() if x.strip()]) <= 14


def test_the_readme_takes_a_minute():
    assert len((ROOT / "README.md").read_text("utf-8").split()) <= 700


def test_import_is_light():
    """Its own modules, and nothing else that jax, equinox, optax and lineax did not bring: no
    plotting, no scikit-learn, no torch, no orbax, no rich; no device is touched.
    """
    code = """
import sys, jax, equinox, optax, lineax
there = set(sys.modules)
import bilevax
from jax._src import xla_bridge
assert not xla_bridge._backends
print(*(set(sys.modules) - there))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    brought = {tuple(name.split(".")) for name in done.stdout.split()}
    libraries = {name[0] for name in brought} - sys.stdlib_module_names
    assert libraries <= {"bilevax", "jax", "jaxlib", "equinox", "optax", "lineax", "numpy"}
    rooms = {name[1] for name in brought if name[0] == "bilevax" and len(name) > 1}
    assert "_rules" in rooms and not rooms & {"apps", "cli", "paper", "problems", "testing"}


def test_files_stay_small():
    """At most 250 lines, and 320 in what is built on the core: apps and paper."""
    for path in SOURCE.rglob("*.py"):
        room = path.relative_to(SOURCE).parts[0]
        most = 320 if room in ("apps", "paper") else 250
        assert len(path.read_text().splitlines()) <= most, path


def test_abstract_or_final():
    """Only abstract classes of bilevax are subclassed in bilevax."""
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                bases = [b.id for b in node.bases if isinstance(b, ast.Name)]
                own = [b for b in bases if b in {*vars(bx), *vars(bx.extend)}]
                assert all(b.startswith("Abstract") for b in own), (path, node.name)


@pytest.mark.parametrize("abstract", [bx.extend.AbstractRule, bx.extend.AbstractDynamics])
def test_abstract_classes_cannot_be_made(abstract):
    with pytest.raises(TypeError, match="abstract"):
        abstract()


def test_every_public_name_has_a_docstring():
    for name in dir(bx):
        if not name.startswith("_"):
            assert (getattr(bx, name).__doc__ or "").strip(), name


@pytest.mark.parametrize(
    "make",
    [
        problems.quadratic,
        problems.toy,
        problems.counterexample,
        problems.ridge,
        problems.logistic,
        problems.reweighting,
        problems.hyper_representation,
    ],
)
def test_problems_descend(make):
    """A step against the hypergradient lowers the outer objective of each problem."""
    p = make()
    hg = bx.hypergradient(p.f, p.xi, bx.Reverse(), T=p.T)
    value, h, *_ = hg(p.lam, p.S)
    lower = jax.tree.map(lambda a, b: a - 1e-3 * b, p.lam, h)
    assert float(hg(lower, p.S).value) < float(value)
