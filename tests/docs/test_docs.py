"""The site: every public name, an example of each, every page in the menu."""

import ast
import importlib
import inspect
import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).parents[2]
DOCS = ROOT / "docs"
PACKAGES = [
    "bilevax",
    "bilevax.extend",
    "bilevax.diagnostics",
    "bilevax.apps",
    "bilevax.problems",
    "bilevax.testing",
    "bilevax.paper.data",
]


def source(module):
    path = ROOT / "src" / module.replace(".", "/")
    file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    return ast.parse(file.read_text("utf-8"))


def exported(package):
    """What an `__init__` takes from its own modules, and what it defines."""
    for node in ast.walk(source(package)):
        if isinstance(node, ast.ImportFrom) and node.level:
            yield from (alias.asname or alias.name for alias in node.names)
    yield from defined(package)


def defined(module):
    for node in source(module).body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            yield node.name
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            yield node.target.id


def public():
    """Every name that a user may write, as a path."""
    for package in PACKAGES:
        for name in exported(package):
            if inspect.ismodule(getattr(importlib.import_module(package), name)):
                yield from (f"{package}.{name}.{x}" for x in defined(f"{package}.{name}"))
            else:
                yield f"{package}.{name}"
    yield from (f"bilevax.paper.records.{name}" for name in defined("bilevax.paper.records"))


TWICE = {f"bilevax.diagnostics.{name}" for name in ("diagnose", "check_gradient", "forecast")}
NAMES = sorted({name for name in public() if "._" not in name} - TWICE)
SHOWN = [
    name
    for page in sorted((DOCS / "api").glob("*.md"))
    for name in re.findall(r"^::: (\S+)", page.read_text("utf-8"), re.M)
    if not name.startswith("bilevax.torch.")  # needs PyTorch; tests/pytorch asks for its names
]


def found(name):
    module, attribute = name.rsplit(".", 1)
    return getattr(importlib.import_module(module), attribute)


def test_public_names_are_those_of_the_packages():
    assert {"bilevax.Reverse", "bilevax.apps.TaskSampler", "bilevax.paper.data.mnist.load"} <= {
        *NAMES
    }
    assert len(NAMES) > 70 and "bilevax.version" not in NAMES


def test_every_public_name_is_on_an_api_page():
    """Once; a class that two paths lead to may stand under either."""
    shown = {id(found(name)) for name in SHOWN}
    assert [name for name in NAMES if name not in SHOWN and id(found(name)) not in shown] == []
    assert len(SHOWN) == len({*SHOWN})


@pytest.mark.parametrize("name", [name for name in NAMES if callable(found(name))])
def test_every_public_name_has_an_example(name):
    assert ">>> " in inspect.getdoc(found(name)), f"{name} has no example"


def test_the_menu_lists_every_page():
    menu = (ROOT / "mkdocs.yml").read_text("utf-8").split("\nnav:\n")[1].split("\n\n")[0]
    lines = [line for line in menu.splitlines() if not line.lstrip().startswith("#")]
    listed = re.findall(r"[\w/-]+\.md$", "\n".join(lines), re.M)
    pages = [page.relative_to(DOCS).as_posix() for page in DOCS.rglob("*.md")]
    assert sorted(listed) == sorted(pages)


def test_links_between_pages_lead_somewhere():
    """As one reads them in the repository; the site's own build checks the rest."""
    for page in DOCS.rglob("*.md"):
        text = re.sub(r"```.*?```", "", page.read_text("utf-8"), flags=re.S)
        for link in re.findall(r"(?:\]\(|^\[\w+\]: )([^)\s#]+)", text, re.M):
            assert "://" in link or (page.parent / link).exists(), (page.name, link)
