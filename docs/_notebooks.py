"""The tutorials as notebooks, made from their pages whenever the site is built.

`python docs/_notebooks.py FOLDER` writes them without the site.
"""

import json
import re
import sys
from pathlib import Path

TUTORIALS = Path(__file__).parent / "tutorials"
FENCE = re.compile(r"^```python(?: peer)?\n(.*?)^```$", re.M | re.S)
HEADING = re.compile(r"^# .*\n", re.M)


def pages() -> list[Path]:
    """Those with code."""
    return [
        page for page in sorted(TUTORIALS.glob("*.md")) if FENCE.search(page.read_text("utf-8"))
    ]


def notebook(page: str) -> str:
    """Prose as Markdown cells, code as code cells, in the order of the page."""
    parts = FENCE.split(page)
    cells = [
        _cell(i, "code" if i % 2 else "markdown", part.strip())
        for i, part in enumerate(parts)
        if part.strip()
    ]
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    metadata = {"kernelspec": kernel, "language_info": {"name": "python"}}
    whole = {"cells": cells, "metadata": metadata, "nbformat": 4, "nbformat_minor": 5}
    return json.dumps(whole, indent=1, ensure_ascii=False) + "\n"


def _cell(i: int, kind: str, text: str) -> dict:
    cell = {"id": f"cell-{i}", "cell_type": kind, "metadata": {}, "source": text}
    return cell | ({"execution_count": None, "outputs": []} if kind == "code" else {})


def on_files(files, config):
    from mkdocs.structure.files import File

    for page in pages():
        text = notebook(page.read_text("utf-8"))
        files.append(File.generated(config, f"tutorials/{page.stem}.ipynb", content=text))
    return files


def on_page_markdown(markdown, page, config, files):
    path = Path(page.file.abs_src_path or "")
    if path.parent != TUTORIALS or path not in pages():
        return markdown
    line = f"\n[Download this page as a notebook]({path.stem}.ipynb)\n"
    return HEADING.sub(lambda heading: heading[0] + line, markdown, count=1)


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for page in pages():
        (folder / f"{page.stem}.ipynb").write_text(notebook(page.read_text("utf-8")), "utf-8")
