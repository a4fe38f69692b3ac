"""The page in a browser: nothing sticks out at any width, nothing is asked of the network, nothing is complained of."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

from edgekit import report
from edgekit.artifact.fact import Code, fact
from edgekit.artifact.result import EvaluationResult
from edgekit.artifact.run_record import RunRecord, TargetStatus, write_run
from edgekit.report.rows import read_study
from tests.core.report.conftest import FP32, INT8, ran

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

BEGAN, LATER = "2026-02-03T04:05:06+00:00", "2026-02-04T04:05:06+00:00"
NOT_INSTALLED = TargetStatus(status="not installed", error="needs litert", began=LATER)
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
    write_run(filled.folder, RunRecord(), {"coreml-int8": TargetStatus(status="skipped", error="no source")})
    page.goto(written(filled))
    sizes = "[...document.querySelector('.summary').tBodies].map(b => b.rows[0].cells[3].dataset.sort)"
    head = page.get_by_role("button", name="size")
    for direction, order in (("ascending", False), ("descending", True)):
        head.click()
        shown = [size for size in page.evaluate(sizes) if size]
        assert shown == sorted(shown, key=int, reverse=order)
        assert head.locator("..").get_attribute("aria-sort") == direction
    assert page.evaluate(sizes)[-1] == ""  # what has no size stands last in both


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
    assert page.evaluate(OVERFLOW) == []
    assert page.evaluate(TOUCHING) == []
    assert {url for url in asked if not url.startswith("data:")} == {address}
    assert said == []


@pytest.mark.nightly
def test_layout_bears_wider_text(filled: Any, page: Page) -> None:
    page.goto(written(filled))
    page.evaluate("(css) => document.head.appendChild(document.createElement('style')).append(css)", SPACING)
    fits(page)


@pytest.fixture
def crowded(filled: Any) -> Any:
    """As many rows as a full export has: 17 targets, most of them in two places, one of which is not here."""
    names = ["coreai", "coreai-int8", "coreml-int8", "executorch", "executorch-int8", "litert", "litert-int8"]
    names += ["openvino", "openvino-int8", "torchscript"]
    missing = fact(Code.RUNTIME_MISSING, text="Core AI runs on macOS 27 only: copy the folder to a Mac " * 2)
    there = EvaluationResult(place="device", status="not verified here", reasons=(missing,))
    for target in names:
        filled.artifact(target, "fp32", notes=("A note of the exporter that is as long as a sentence may be.",) * 5)
        maps = filled.scores(target, "cpu", 1e-6, 3)
        filled.judge(target, [ran(filled, maps, FP32, 3.0), there], 13_200_000)
    states = {row.target: TargetStatus(status="verified", began=BEGAN) for row in read_study(filled.folder).rows}
    states["onnx-buckets"] = TargetStatus(status="not installed", error="needs onnx", began=BEGAN)
    write_run(filled.folder, RunRecord(began=BEGAN, command="edgekit export"), states)
    return filled


@pytest.mark.nightly(but=("filled",))
@pytest.mark.parametrize("build", ["filled", "crowded"])
def test_four_screens_stand_before_the_first_fold_and_no_column_is_hidden(
    build: str, request: pytest.FixtureRequest, page: Page
) -> None:
    address = written(request.getfixturevalue(build))
    for width, height in ((1280, 860), (390, 844)):
        page.set_viewport_size({"width": width, "height": height})
        page.goto(address)
        if width == 1280:
            assert page.evaluate("document.documentElement.scrollHeight") <= 4 * height
            assert page.locator("#ship + .advice").evaluate("box => box.getBoundingClientRect().bottom") <= height
        page.evaluate("document.querySelectorAll('details').forEach(d => { d.open = true })")
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert page.evaluate(SCROLLS) == []


def test_one_artifact_is_six_printed_pages_at_most(builder: Any, page: Page) -> None:
    builder.reference()
    builder.artifact("onnx-int8-static", "int8", notes=("A note of the exporter, as long as a sentence may be.",) * 12)
    maps = builder.scores("onnx-int8-static", "cpu", 0.07, 3, 4)
    notes = tuple(fact(Code.TEXT, text="A note that says what a reader should know of it. " * 4) for _ in range(12))
    builder.judge("onnx-int8-static", [ran(builder, maps, INT8, 2.1, notes=notes)], 3_150_000)
    page.goto(written(builder))
    assert len(re.findall(rb"/Type\s*/Page\b", page.pdf(format="A4"))) <= 6
    page.emulate_media(media="print")
    assert page.get_by_text("Notes of the exporter").is_visible()  # the proof is on paper, although it is folded


def test_a_link_of_the_table_opens_the_proof(filled: Any, page: Page) -> None:
    page.goto(written(filled))
    proof = page.locator("section[aria-label=onnx-fp16]")
    assert not proof.is_visible()
    page.locator(".summary a", has_text="onnx-fp16").click()
    assert proof.is_visible()
    assert "coverage@32 drop" in proof.inner_text()
    assert "over the first 32 places of the ranking" in proof.inner_text()


def test_rows_of_this_run_come_first_and_what_is_not_installed_is_a_line(crowded: Any, page: Page) -> None:
    states = {"onnx": TargetStatus(status="verified", began=LATER), "litert": NOT_INSTALLED}
    write_run(crowded.folder, RunRecord(began=LATER), states)
    page.goto(written(crowded))
    tables = page.locator("table.summary")
    assert tables.count() == 2
    assert tables.first.locator("tbody th").all_inner_texts() == ["onnx fp32"]
    assert not tables.nth(1).is_visible()
    page.get_by_text("more of other hosts and earlier runs").click()
    assert tables.nth(1).is_visible()
    assert page.locator("#missing").inner_text() == "Not installed here, so not exported: litert (needs litert)."
    assert "onnx-buckets" not in page.content(), "what was not installed then may be by now"


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
