"""Builds the site and opens every page in Chromium, wide and narrow, light and dark.

`python tests/site_check.py` prints what is wrong, one line each, and fails if there is anything:
Markdown that is shown as text, words of code that are broken, content that is wider than the page
and does not scroll, links and images that lead nowhere, errors on the console.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urldefrag, urlsplit

ROOT = Path(__file__).parents[1]
BROWSERS = "chromium", "google-chrome", "chromium-browser", "chrome"
CHROMIUM = next(filter(None, map(shutil.which, BROWSERS)), None)
WIDTHS = (1300, 420)
SCHEMES = ("default", "slate")
"""Light and dark, as the theme calls them, in the order of its switches."""
VIEWS = [(w, s) for w, turn in zip(WIDTHS, (1, -1), strict=True) for s in SCHEMES[::turn]]
"""Every width in every scheme, in an order that switches as seldom as can be."""
PATIENCE = 180_000
"""Milliseconds for a page to load, on a machine that does other things too."""
SWITCH = """async ([place, scheme]) => {
  const is = () => document.body.dataset.mdColorScheme;
  if (is() !== scheme) document.getElementById(`__palette_${place}`).click();
  for (let i = 0; i < 3000 && is() !== scheme; i++) await new Promise((go) => setTimeout(go, 10));
  return is();
}"""
LOOK = (Path(__file__).parent / "site_check.js").read_text("utf-8")


def build(folder: Path) -> None:
    """The site, as `make docs` builds it."""
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "-d", str(folder)]
    quiet = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    subprocess.run(command, cwd=ROOT, env=quiet, check=True)


def faults(site: Path, pages: list[Path] | None = None) -> list[str]:
    """What is wrong with the pages of a site, each fault once."""
    from playwright.sync_api import sync_playwright

    pages = sorted({*site.rglob("*.html")} - {site / "404.html"}) if pages is None else pages
    found = [fault for page in pages for fault in broken_links(site, page)]
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        window = browser.new_context(offline=True, reduced_motion="reduce").new_page()
        window.set_default_timeout(PATIENCE)
        said = _listen(window)
        for path in pages:
            seen = [*_look(window, path), *said]
            found += [f"{path.relative_to(site)}: {fault}" for fault in seen]
            said.clear()
        browser.close()
    return sorted(set(found))


def _listen(window) -> list[str]:
    """What the window says, as it says it."""
    said = []
    tell = lambda text: said.append(f"console: {text}")
    window.on("console", lambda m: m.type in ("error", "warning") and tell(m.text))
    window.on("pageerror", tell)
    window.on("requestfailed", lambda request: said.append(f"not loaded: {request.url}"))
    return said


def _look(window, path: Path) -> Iterator[str]:
    """One page, at every width and in every colour scheme."""
    window.set_viewport_size({"width": WIDTHS[0], "height": 900})
    window.goto(path.as_uri(), wait_until="load")
    for width, scheme in VIEWS:
        window.set_viewport_size({"width": width, "height": 900})
        assert window.evaluate(SWITCH, [SCHEMES.index(scheme), scheme]) == scheme, path
        yield from (f"{fault} ({width} pixels)" for fault in window.evaluate(LOOK))


class Page(HTMLParser):
    """Links of a page, and what in it can be linked to."""

    def __init__(self, path: Path):
        super().__init__()
        self.links: set[str] = set()
        self.anchors: set[str] = {"", "__top"}
        self.feed(path.read_text("utf-8"))

    def handle_starttag(self, tag, attrs):
        given = dict(attrs)
        self.anchors |= {given[k] for k in ("id", "name") if given.get(k)}
        self.links |= {given[k] for k in ("href", "src") if given.get(k)}


_PAGES: dict[Path, Page] = {}


def _page(path: Path) -> Page:
    if path not in _PAGES:
        _PAGES[path] = Page(path)
    return _PAGES[path]


def broken_links(site: Path, page: Path) -> Iterator[str]:
    """Links to other sites are not followed: the site is opened without a network."""
    where = page.relative_to(site)
    for link in sorted(_page(page).links):
        address, anchor = urldefrag(link)
        if urlsplit(address).scheme:
            continue
        path = (page.parent / unquote(address)).resolve() if address else page
        path = path / "index.html" if path.is_dir() else path
        if not path.is_file() or not path.is_relative_to(site):
            yield f"{where}: {link} leads nowhere"
        elif path.suffix == ".html" and unquote(anchor) not in _page(path).anchors:
            yield f"{where}: {link} has no such heading"


def main() -> None:
    if CHROMIUM is None:
        sys.exit("no chromium is on PATH")
    with tempfile.TemporaryDirectory() as folder:
        site = Path(folder).resolve() / "site"
        build(site)
        found = faults(site)
        print("\n".join(found) or f"{len(_PAGES)} pages are in order")
    sys.exit(bool(found))


if __name__ == "__main__":
    main()
