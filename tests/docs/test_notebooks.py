"""The tutorials as notebooks: nothing of a page is lost, and each runs from top to bottom."""

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


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_notebook_opens_and_runs(page, tmp_path):
    nbformat = pytest.importorskip("nbformat", reason="nbformat is not installed")
    client = pytest.importorskip("nbclient", reason="nbclient is not installed")
    pytest.importorskip("ipykernel", reason="ipykernel is not installed")
    text = page.read_text("utf-8")
    if "```python peer" in text and importlib.util.find_spec("flax") is None:
        pytest.skip(f"{page.name} needs a library that is not installed")
    path = tmp_path / "page.ipynb"
    path.write_text(notebooks.notebook(text), "utf-8")
    opened = nbformat.read(path, as_version=4)
    nbformat.validate(opened)
    done = client.NotebookClient(opened, timeout=600, resources={"metadata": {"path": tmp_path}})
    done.execute()
    ran = [cell for cell in opened.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in ran] == list(range(1, len(ran) + 1))
