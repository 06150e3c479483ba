"""The site in a browser: every page as it is read, wide and narrow, light and dark."""

import importlib.util

import pytest
import site_check

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(site_check.CHROMIUM is None, reason="no chromium is on PATH"),
    *(
        pytest.mark.skipif(importlib.util.find_spec(name) is None, reason=f"{name} is missing")
        for name in ("mkdocs", "mkdocstrings", "material", "playwright")
    ),
]


def test_every_page_is_in_order(tmp_path):
    site_check.build(tmp_path / "site")
    assert site_check.faults(tmp_path / "site") == []


BAD = {
    "fence": ("<p>```python peer</p>", "Markdown as text"),
    "bold": ("<p>**bold**</p>", "Markdown as text"),
    "wide": ("<div style='width: 3000px'>wide</div>", "wide"),
    "cut": ("<div style='overflow: hidden; white-space: nowrap'>" + "cut " * 999, "cut off"),
    "image": ("<img src='nothing.png'>", "no image: nothing.png"),
    "link": ("<a href='nothing.html'>link</a>", "nothing.html leads nowhere"),
    "anchor": ("<a href='#nothing'>link</a>", "#nothing has no such heading"),
    "error": ("<script>console.error('broken')</script>", "console: broken"),
    "code": ("<code style='word-break: break-all'>" + "words_of_code, " * 40, "code is broken"),
}
"""A page with one fault, and what is said of it."""


@pytest.fixture(scope="module")
def bad(tmp_path_factory):
    """What is found on all of these pages, in one browser."""
    site = tmp_path_factory.mktemp("bad")
    click = "document.body.dataset.mdColorScheme = &quot;{1}&quot;"
    switch = f'<input type=radio id=__palette_{{0}} onclick="{click}">'
    switches = "".join(switch.format(i, scheme) for i, scheme in enumerate(site_check.SCHEMES))
    for name, (body, _) in BAD.items():
        page = f"<!doctype html><body>{switches}{body}</body>"
        (site / f"{name}.html").write_text(page, "utf-8")
    return site_check.faults(site)


@pytest.mark.parametrize("name", BAD)
def test_what_is_broken_is_found(bad, name):
    found = [fault for fault in bad if fault.startswith(f"{name}.html: ")]
    assert any(BAD[name][1] in fault for fault in found), found
