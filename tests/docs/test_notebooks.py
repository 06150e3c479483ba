"""The tutorials as notebooks: nothing of a page is lost, each opens, and one runs in a kernel."""

import importlib.util
import json
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
spec = importlib.util.spec_from_file_location("notebooks", DOCS / "_notebooks.py")
notebooks = importlib.util.module_from_spec(spec)
spec.loader.exec_module(notebooks)
PAGES = notebooks.pages()


def test_a_notebook_has_all_of_its_page():
    assert len(PAGES) >= 6
    for page in PAGES:
        text = page.read_text("utf-8")
        cells = json.loads(notebooks.notebook(text))["cells"]
        code = [cell["source"] for cell in cells if cell["cell_type"] == "code"]
        assert code == [found.strip() for found in notebooks.FENCE.findall(text)]
        prose = "".join(cell["source"] for cell in cells if cell["cell_type"] == "markdown")
        assert "```python" not in prose and prose.startswith("# ")


def opened(page, path):
    nbformat = pytest.importorskip("nbformat", reason="nbformat is not installed")
    path.write_text(notebooks.notebook(page.read_text("utf-8")), "utf-8")
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    return notebook


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_notebook_opens(page, tmp_path):
    assert opened(page, tmp_path / "page.ipynb").cells


@pytest.mark.slow
def test_a_notebook_runs(tmp_path):
    """In a kernel. The code of the others is that of their pages, which run in test_package.py."""
    client = pytest.importorskip("nbclient", reason="nbclient is not installed")
    pytest.importorskip("ipykernel", reason="ipykernel is not installed")
    notebook = opened(DOCS / "tutorials" / "loss_weights.md", tmp_path / "page.ipynb")
    resources = {"metadata": {"path": tmp_path}}
    client.NotebookClient(notebook, timeout=600, resources=resources).execute()
    ran = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in ran] == list(range(1, len(ran) + 1))
