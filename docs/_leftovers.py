"""A page whose Markdown was not understood stops the build: fences or asterisks in its text."""

import re
from html.parser import HTMLParser

from mkdocs.exceptions import PluginError

CODE = {"code", "pre", "script", "style", "textarea"}
LEFT = re.compile(r"```|~~~|\*\*|^\s*:::|(?<!\w)\$\S[^$]*\$|\n[-*] ")
"""Fences, bold, API pages, formulas and items of a list as they are written."""


class Text(HTMLParser):
    """The text that a reader sees, without code."""

    def __init__(self):
        super().__init__()
        self.within: list[str] = []
        self.found: list[str] = []

    def handle_starttag(self, tag, attrs):
        if tag in CODE:
            self.within.append(tag)

    def handle_endtag(self, tag):
        if self.within and self.within[-1] == tag:
            self.within.pop()

    def handle_data(self, data):
        if not self.within and LEFT.search(data):
            self.found.append(" ".join(data.split())[:80])


def leftovers(html: str) -> list[str]:
    """Pieces of Markdown in the text of a page."""
    text = Text()
    text.feed(html)
    return text.found


def on_post_page(output, page, config):
    if found := leftovers(output):
        raise PluginError(f"{page.file.src_uri} shows Markdown as text: {found[0]!r}")
