"""The page in a browser: nothing sticks out at any width, nothing is asked of the network, nothing is complained of."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

from edgekit import report
from edgekit.artifact.run_record import AskedTarget, RunRecord, write_run

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

WIDTHS = (320, 390, 768, 1024, 1440)
CARDS = 860  # CSS pixels: up to this width the tables become cards, and nothing needs to scroll sideways
# Fonts differ from machine to machine. The spacing that WCAG 2.2 asks a page to bear (success criterion 1.4.12) widens
# every line by about a quarter: a page that fits with it fits with any font.
SPACING = """
* { letter-spacing: .12em !important; word-spacing: .16em !important; line-height: 1.5 !important; }
p { margin-bottom: 2em !important; }
"""

OVERFLOW = """() => [...document.querySelectorAll('body *')].filter(e =>
  e.getBoundingClientRect().right > document.documentElement.clientWidth + 1
  && !e.closest('.scroll, svg, .skip, thead')).map(e => e.outerHTML.slice(0, 90))"""
SCROLLS = """() => [...document.querySelectorAll('.scroll')].filter(e => e.scrollWidth > e.clientWidth + 1)
  .map(e => e.outerHTML.slice(0, 90))"""
OVERLAP = """() => [...document.querySelectorAll('.card .pad')].filter(e => {
  const [a, b] = [...e.children].map(c => c.getBoundingClientRect());
  return a.right > b.left + 1 && a.bottom > b.top + 1 }).length"""
NARROW = """() => [...document.querySelectorAll('caption:not(.skip)')].filter(e =>
  e.getClientRects().length && e.getBoundingClientRect().width < e.parentElement.clientWidth - 1)
  .map(e => e.textContent)"""
LETTERS = """() => Math.min(...[...document.querySelectorAll('body *')].filter(e =>
  [...e.childNodes].some(n => n.nodeType === 3 && n.data.trim())).map(e => parseFloat(getComputedStyle(e).fontSize)))"""

# Numbers of an axis that stand less than a letter apart.
TOUCHING = """() => [...document.querySelectorAll('svg.chart')].flatMap(svg => {
  const found = [...svg.querySelectorAll('.tick')].map(e => [e.getBoundingClientRect(), e.textContent])
    .filter(([box]) => box.width).sort(([a], [b]) => a.left - b.left);
  return found.slice(1).filter(([box], i) => box.left - found[i][0].right < 5).map(([, text]) => text) })"""
SHEET = 703  # CSS pixels: the width of A4 within the margins of the stylesheet


def written(filled: Any) -> str:
    report.write_report(filled.folder)
    return str((filled.folder / "report.html").as_uri())


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    opened = browser.new_page()
    yield opened
    opened.close()


def test_the_table_of_verdicts_is_sorted_by_its_heads(filled: Any, page: Page) -> None:
    write_run(filled.folder, RunRecord(), {"coreml-int8": AskedTarget(status="skipped", error="no source")})
    page.goto(written(filled))
    sizes = "[...document.querySelectorAll('.summary tbody')].map(b => b.rows[0].cells[2].dataset.sort)"
    head = page.get_by_role("button", name="size")
    for direction, order in (("ascending", False), ("descending", True)):
        head.click()
        shown = [size for size in page.evaluate(sizes) if size]
        assert shown == sorted(shown, key=int, reverse=order)
        assert head.locator("..").get_attribute("aria-sort") == direction
    assert page.evaluate(sizes)[-1] == ""  # what has no size stands last in both
    assert page.locator(".summary tr.why").first.evaluate("row => row.previousElementSibling !== null")


def test_layout(filled: Any, page: Page) -> None:
    asked: list[str] = []
    said: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.on("console", lambda message: said.append(message.text))
    address = written(filled)
    page.goto(address)
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        fits(page)
    page.emulate_media(media="print")
    assert page.evaluate("document.querySelector('nav').offsetParent") is None
    page.set_viewport_size({"width": SHEET, "height": 1000})
    assert page.locator(".trade .ticks .tick").first.is_visible()
    assert page.evaluate(TOUCHING) == []
    assert {url for url in asked if not url.startswith("data:")} == {address}
    assert said == []


def test_layout_bears_wider_text(filled: Any, page: Page) -> None:
    page.goto(written(filled))
    page.evaluate("(css) => document.head.appendChild(document.createElement('style')).append(css)", SPACING)
    fits(page)


def fits(page: Page) -> None:
    """Nothing is cut off, nothing overlaps and nothing is too small to read, with all details open."""
    page.evaluate("document.querySelectorAll('details').forEach(d => { d.open = true })")
    for width in WIDTHS:
        page.set_viewport_size({"width": width, "height": 900})
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert page.evaluate(OVERFLOW) == []
        assert page.evaluate(OVERLAP) == 0
        assert page.evaluate(NARROW) == []
        assert page.evaluate(TOUCHING) == []
        assert page.evaluate(LETTERS) >= 12
        if width <= CARDS:
            assert page.evaluate(SCROLLS) == []
