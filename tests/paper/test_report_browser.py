"""The page in a browser: drawn, alive, offline, and nothing in a run becomes code."""

import pytest
import synthetic
from site_check import CHROMIUM

from bilevax.paper import report as rp
from bilevax.paper.records import Records

ATTACK = "<img src=x onerror=alert(1)>"
CLOSING = "</script><script>alert(2)</script>"
RULES = ["Reverse(K=1)", ATTACK, CLOSING, "%{x} $a_b$ &lt;b&gt;"]

MIDDLE = """line => {
    const point = line.getPointAtLength(line.getTotalLength() / 2);
    const seen = point.matrixTransform(line.getScreenCTM());
    return [seen.x, seen.y];
}"""
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no chromium is on PATH")


@pytest.fixture(scope="module")
def page_file(tmp_path_factory):
    folder = tmp_path_factory.mktemp("page")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("os.fsync", lambda file: None)
        synthetic.write_toy(folder / "toy", steps=20, size=15)
        settings = {"rules": RULES, "every": 500, "preset": CLOSING, "note": ATTACK}
        synthetic.write_cleaning(folder / "cleaning", **settings)
        with Records(folder / "odd", {"experiment": ATTACK, CLOSING[2:8]: CLOSING}) as records:
            records.add(kind=CLOSING, text=ATTACK)
    return rp.report([folder / name for name in ("toy", "cleaning", "odd")], folder / "page.html")


@pytest.fixture(scope="module")
def opened(page_file):
    """The page, and all that it said, asked for, or popped up."""
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    seen = {"console": [], "errors": [], "requests": [], "dialogs": []}
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        context = browser.new_context(offline=True, color_scheme="light")
        page = context.new_page()
        page.on("console", lambda message: seen["console"].append(message.text))
        page.on("pageerror", lambda error: seen["errors"].append(str(error)))
        page.on("request", lambda request: seen["requests"].append(request.url))
        page.on("dialog", lambda dialog: (seen["dialogs"].append(dialog.message), dialog.dismiss()))
        page.goto(page_file.as_uri())
        page.wait_for_function("() => document.querySelectorAll('.plot .main-svg').length > 0")
        yield page, seen
        browser.close()


def test_charts_are_drawn(opened):
    page, _ = opened
    plots = page.locator(".plot")
    assert plots.count() == 13
    paths = "plots => plots.map(p => p.querySelectorAll('.plot path[d^=M]').length)"
    assert min(plots.evaluate_all(paths)) > 0
    lines = "plots => plots.map(p => p.querySelectorAll('.scatterlayer .js-line').length)"
    assert plots.evaluate_all(lines)[1:4] == [3, 6, 6]


def test_hovering_gives_a_tooltip(opened):
    page, _ = opened
    plot = page.locator(".plot").nth(1)
    plot.scroll_into_view_if_needed()
    x, y = plot.locator(".scatterlayer .js-line").last.evaluate(MIDDLE)
    page.mouse.move(x + 5, y + 5)
    page.mouse.move(x, y, steps=3)
    plot.locator(".hovertext").first.wait_for(timeout=5000)
    assert "error" in plot.locator(".hovertext").first.text_content()


def test_what_a_run_says_is_text(opened):
    page, seen = opened
    text = page.locator("body").inner_text()
    assert ATTACK in text and CLOSING in text
    assert page.locator("img").count() == 0
    legend = page.locator(".legendtext").all_text_contents()
    assert set(RULES[1:]) <= set(legend)
    assert seen["dialogs"] == []


def test_a_script_that_got_in_would_not_run(opened):
    page, seen = opened
    said = len(seen["console"])
    page.evaluate(
        "document.body.insertAdjacentHTML('beforeend', '<details open ontoggle=alert(3)>')"
    )
    page.wait_for_timeout(200)
    assert seen["dialogs"] == [] and len(seen["console"]) > said  # the policy says that it refused
    page.locator("details").evaluate("element => element.remove()")
    del seen["console"][said:]


def test_dark_and_narrow(opened):
    page, _ = opened
    colour = lambda: page.locator(".js-line").first.evaluate("line => line.style.stroke")
    light = colour()
    page.emulate_media(color_scheme="dark")
    page.wait_for_function(
        "light => document.querySelector('.js-line').style.stroke !== light", arg=light
    )
    page.set_viewport_size({"width": 400, "height": 800})
    page.wait_for_function("() => document.documentElement.scrollWidth <= 400", timeout=5000)


def test_silent_and_offline(opened, page_file):
    """Last: after all that was done to the page."""
    _, seen = opened
    assert seen["errors"] == [] and seen["console"] == []
    assert {url.split("#")[0] for url in seen["requests"]} <= {page_file.as_uri()}
