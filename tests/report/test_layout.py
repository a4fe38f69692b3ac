"""The page in a browser: nothing sticks out at any width, nothing is asked of the network, nothing is complained of."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from typing import Any

import pytest

from edgekit import report

CHROMIUM = next((path for name in ("chromium", "google-chrome", "chrome") if (path := shutil.which(name))), None)
FLAGS = ["--no-sandbox", "--disable-background-networking", "--disable-component-update", "--disable-sync"]
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on PATH: apt-get install chromium")

OVERFLOW = """() => [...document.querySelectorAll('body *')].filter(e =>
  e.getBoundingClientRect().right > document.documentElement.clientWidth + 1
  && !e.closest('.scroll, svg, .skip, thead')).map(e => e.outerHTML.slice(0, 90))"""
OVERLAP = """() => [...document.querySelectorAll('.card .pad')].filter(e => {
  const [a, b] = [...e.children].map(c => c.getBoundingClientRect());
  return a.right > b.left + 1 && a.bottom > b.top + 1 }).length"""
LETTERS = """() => Math.min(...[...document.querySelectorAll('body *')].filter(e =>
  [...e.childNodes].some(n => n.nodeType === 3 && n.data.trim())).map(e => parseFloat(getComputedStyle(e).fontSize)))"""


@pytest.fixture
def browser() -> Iterator[Any]:
    playwright = pytest.importorskip("playwright.sync_api", reason="Playwright is not installed")
    with playwright.sync_playwright() as started:
        launched = started.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield launched
        launched.close()


def test_layout(filled: Any, browser: Any) -> None:
    page = browser.new_page()
    asked: list[str] = []
    said: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.on("console", lambda message: said.append(message.text))
    address = report.write(filled.folder).html.as_uri()
    page.goto(address)
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        for width in (320, 390, 768, 1024, 1440):
            page.set_viewport_size({"width": width, "height": 900})
            page.evaluate("document.querySelectorAll('details').forEach(d => { d.open = true })")
            assert page.evaluate("document.documentElement.scrollWidth") <= width
            assert page.evaluate(OVERFLOW) == []
            assert page.evaluate(OVERLAP) == 0
            assert page.evaluate(LETTERS) >= 12
    page.emulate_media(media="print")
    assert page.evaluate("document.querySelector('nav').offsetParent") is None
    assert {url for url in asked if not url.startswith("data:")} == {address}
    assert said == []
