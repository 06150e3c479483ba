"""Pages link to files outside of docs/ as one reads them in the repository; the site takes
such files along, under `repository/`, and its links follow them there.
"""

import posixpath
import re
from collections.abc import Callable
from pathlib import Path

from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, InclusionLevel

ROOT = Path(__file__).resolve().parent.parent
LINK = re.compile(r"(?:(?<=\]\()|(?<=\]: ))[^)\s#:]+")
FETCHED = re.compile(r"<(?:script|img|iframe|link)\b[^>]*\b(?:src|href)=[\"']?(?:https?:)?//[^>]*>")
TIGHT = re.compile(r"^(?![-|>#\s]).+\n(?=- )", re.M)
"""The last line of a paragraph that a list follows at once."""
PEER = re.compile(r"^( *```python) peer$", re.M)
"""Code that needs a library which the tests may not have: a mark for them, not for readers."""
LONG = re.compile(r"(?<!</span>)<code>[^<\s]{30,}</code>")
"""Code within a line that is too long for a narrow page, and has no space to break at."""


def on_files(files, config):
    waiting = list(files.documentation_pages())
    while waiting:
        page = waiting.pop()
        for path in _leaving(page):
            uri = _uri(path)
            if files.get_file_from_path(uri) is None:
                inclusion = InclusionLevel.NOT_IN_NAV
                new = File.generated(config, uri, abs_src_path=str(path), inclusion=inclusion)
                files.append(new)
                waiting += [new] if new.is_documentation_page() else []
    return files


def on_page_markdown(markdown, page, config, files):
    markdown = markdown.replace("```python peer\n", "```python\n")  # a mark for the tests
    here = posixpath.dirname(page.file.src_uri)
    move = lambda path: posixpath.relpath(_uri(path), here or ".")
    markdown = PEER.sub(r"\1", _relinked(markdown, page.file, move))
    return TIGHT.sub(r"\g<0>\n", markdown)


def on_page_content(html, page, config, files):
    return LONG.sub(lambda code: re.sub(r"(?<=[.(=])(?=[^<])", "<wbr>", code[0]), html)


def on_post_page(output, page, config):
    if found := FETCHED.search(output):
        raise PluginError(f"{page.file.src_uri} fetches {found[0]}; put the file into docs/assets.")


def _relinked(markdown: str, page: File, move: Callable[[Path], str]) -> str:
    folder = Path(page.abs_src_path).parent

    def one(link: re.Match) -> str:
        path = (folder / link[0]).resolve()
        return move(path) if path.is_file() and path.is_relative_to(ROOT) else link[0]

    return LINK.sub(one, markdown)


def _leaving(page: File) -> list[Path]:
    """The files outside of docs/ that a page links to."""
    found = []
    _relinked(page.content_string, page, lambda path: found.append(path) or "")
    return [path for path in found if not path.is_relative_to(ROOT / "docs")]


def _uri(path: Path) -> str:
    """Where a file of the repository stands on the site."""
    path = path.relative_to(ROOT)
    return path.relative_to("docs").as_posix() if path.parts[0] == "docs" else f"repository/{path}"
