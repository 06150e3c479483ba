"""Files around the code that say the same thing in several places."""

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
read = lambda name: (ROOT / name).read_text("utf-8")


def test_the_version_is_one():
    assert re.search(r"^version: (.*)$", read("CITATION.cff"), re.M)[1] == PROJECT["version"]
    assert re.search(r"^## (\S+)", read("CHANGELOG.md"), re.M)[1] == PROJECT["version"]


def test_the_address_is_one():
    address = PROJECT["urls"]["Repository"]
    assert f"repo_url: {address}\n" in read("mkdocs.yml")
    assert f'repository-code: "{address}"' in read("CITATION.cff")


def test_badges_are_true():
    python = PROJECT["requires-python"].removeprefix(">=")
    (jax,) = [x.removeprefix("jax>=") for x in PROJECT["dependencies"] if x.startswith("jax>=")]
    said = {"python": f"Python: {python}+", "jax": f"JAX: {jax}+"}
    said["licence"] = f"licence: {PROJECT['license']}"
    for name, text in said.items():
        assert f"<title>{text}</title>" in read(f"docs/assets/badges/{name}.svg")
        assert f"docs/assets/badges/{name}.svg" in read("README.md")


def test_workflows_run_what_there_is():
    targets = set(re.findall(r"^([a-z-]+):", read("Makefile"), re.M))
    flows = list((ROOT / ".github" / "workflows").glob("*.yml"))
    used = {t for flow in flows for t in re.findall(r"run: make (\S+)", flow.read_text("utf-8"))}
    assert len(flows) == 3 and {"lint", "test", "test-all", "docs"} <= used <= targets


def test_workflows_are_pinned_and_may_only_read():
    """An action is a commit, and its release a comment; only jobs that publish may write."""
    for flow in (ROOT / ".github" / "workflows").glob("*.yml"):
        text = flow.read_text("utf-8")
        used = re.findall(r"uses: (.*)", text)
        assert used and all(re.fullmatch(r"\S+@[0-9a-f]{40}  # v[\d.]+", x) for x in used), flow
        assert "\npermissions: {contents: read}\n" in text
        assert "secrets." not in text and ("write" in text) == (flow.stem in ("docs", "release"))


def test_one_way_to_install():
    """What works today; what a release will bring stands in README and quickstart, once each."""
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    later = {p.name for p in pages if "pip install 'bilevax[" in p.read_text("utf-8")}
    assert later == {"README.md", "quickstart.md"}
