"""The page as somebody meets it who was never there: what it says is so, and what it offers works."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from PIL import Image

from tests.web.conftest import DESKTOP, PATIENCE, Opener, ready
from tests.web.driving import until
from tests.web.host import Host
from tests.web.pictures import png
from tests.web.test_page import DEVICES, answered

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

CLIPBOARD = ("clipboard-read", "clipboard-write")
LONG = "a" * 120
BOTTOMS = """() => ["#map-a", "#views", "#open", "#start-camera", "#save-picture"].map((selector) =>
  document.querySelector(selector).getBoundingClientRect().bottom)"""


def line(page: Page) -> str:
    return page.inner_text("#answer-line")


def chips(page: Page) -> list[str]:
    return page.locator("#query-status button").all_inner_texts()


@pytest.mark.nightly
def test_every_sample_and_each_of_its_queries_is_answered_and_the_one_miss_is_labelled(page: Page) -> None:
    samples = page.locator("#strip [data-sample]").all()
    missed = []
    for sample in samples:
        sample.click()
        query = (sample.get_attribute("aria-label") or "").removeprefix("Sample: ").removesuffix(", which is not in it")
        answered(page, query)
        if line(page).startswith("Nothing like"):
            missed.append(query)
            assert "which is not in it" in (sample.get_attribute("aria-label") or "")
            assert page.inner_text("#answer-reason").startswith("That is right: this picture has none")
        assert chips(page)
        for text in chips(page):
            page.locator("#query-status button", has_text=re.compile(f"^{text}$")).click()
            answered(page, text)
            assert line(page).startswith(f"Found “{text}”")
            page.go_back()
            answered(page, query)
    assert missed == ["cross"]


@pytest.mark.nightly
def test_the_first_sentence_says_what_the_model_knows_and_what_not(page: Page) -> None:
    known = page.inner_text("#word-count")
    sentence = f"The model knows {known} words for sizes, colours, patterns, shapes and things,"
    purpose = page.inner_text("#purpose")
    assert purpose.startswith(
        f"{sentence} such as “large red circle” or “cat”, and no others: it does not know “sky” or “road”."
    )


@pytest.mark.nightly
def test_the_picture_and_what_opens_another_are_in_sight(open_page: Opener) -> None:
    page = open_page(**DESKTOP)
    ready(page)
    for query in ("red circle", "cross"):
        page.fill("#query", query)
        answered(page, query)
        assert max(page.evaluate(BOTTOMS)) <= DESKTOP["viewport"]["height"]


def test_where_nothing_is_found_nothing_is_outlined_or_praised_and_the_page_says_why(open_page: Opener) -> None:
    page = open_page("?sample=006", **DESKTOP)
    answered(page, "cross")
    page.locator("#patch-name", has_text="Highest").wait_for()
    assert page.locator(".savings").is_hidden()
    assert page.locator(".top-patches").is_hidden()
    page.set_input_files("#file", {"name": "own.png", "mimeType": "image/png", "buffer": _flat()})
    page.locator("#answer-reason", has_text="The model was trained on discs on gradients: it may miss").wait_for()
    page.fill("#query", "circle")
    page.locator("#answer-line", has_text="Found “circle”").wait_for()
    assert page.locator("#answer-reason").is_hidden()
    page.locator(".savings").wait_for()
    assert page.inner_text("#outlined") == "those of 0.50 or more, which count as found"


@pytest.mark.nightly
def test_an_unknown_word_gets_the_list_of_known_ones(page: Page) -> None:
    page.fill("#query", "justice")
    page.locator("#query-status", has_text="The model does not know “justice”. It knows the words below.").wait_for()
    page.locator("#word-kinds button", has_text="triangle").wait_for()
    page.locator("#word-kinds button", has_text="yellow").click()
    page.fill("#query", "yellow")
    answered(page, "yellow")
    assert page.locator("#words").get_attribute("open") is None, "it was opened to help, and closes again"


@pytest.mark.nightly(but=("phone",))
@DEVICES
def test_a_word_of_120_letters_is_cut_and_nothing_overflows(page: Page) -> None:
    page.fill("#query", LONG)
    page.locator("#query-status", has_text=f"“{'a' * 24}…”").wait_for()
    page.locator("#answer-line", has_text="…").wait_for()
    assert LONG not in page.inner_text("body")
    assert page.evaluate("() => document.documentElement.scrollWidth <= innerWidth")
    for part in ("#query-status", "#answer-line"):
        assert page.locator(part).evaluate("(e) => e.scrollWidth <= e.clientWidth"), part


@pytest.mark.nightly
@pytest.mark.parametrize("text", ["red circle and blue squares", "red circle blue square"])
def test_several_things_are_asked_one_after_the_other(page: Page, text: str) -> None:
    first, second = "red circle", text.removeprefix("red circle ").removeprefix("and ")
    page.fill("#query", text)
    answered(page, first)
    page.locator("#query-status", has_text="The model looks for one thing at a time:").wait_for()
    assert chips(page) == [first, second]
    page.locator("#query-status button", has_text=second).click()
    answered(page, second)
    assert page.input_value("#query") == text
    assert page.locator("#query-status [aria-pressed=true]").all_inner_texts() == [second]


@pytest.mark.nightly
def test_back_and_forward_step_through_what_was_asked(page: Page) -> None:
    page.locator("#query").select_text()
    page.locator("#query").press_sequentially("star")
    page.press("#query", "Enter")
    answered(page, "star")
    page.get_by_role("button", name="Sample: striped").click()
    answered(page, "striped")
    page.set_input_files("#file", {"name": "mine.png", "mimeType": "image/png", "buffer": png(90, 50)})
    page.locator('.tile[aria-pressed="true"]').wait_for(state="detached")
    page.locator("#query").fill("ring")
    answered(page, "ring")
    page.locator("#views label", has_text="Focus").click()  # a setting is no step
    steps = [("striped", ""), ("striped", "002"), ("star", "000"), ("red circle", "000")]
    for move, visited in (("go_back", steps), ("go_forward", [*steps[:-1][::-1], ("ring", "")])):
        for query, sample in visited:
            getattr(page, move)()
            answered(page, query)
            page.locator(f'.tile[aria-pressed="true"][data-sample="{sample}"]').wait_for() if sample else None
            assert page.locator('.tile[aria-pressed="true"]').count() == bool(sample)
            assert page.input_value("#query") == query
    assert page.locator('input[value="focus"]').is_checked()
    assert "view=focus" in page.url


@pytest.mark.nightly
def test_a_result_is_saved_copied_and_shared(open_page: Opener, tmp_path: Path) -> None:
    page = open_page(permissions=list(CLIPBOARD), **DESKTOP)
    ready(page)
    with page.expect_download() as saved:
        page.get_by_role("button", name="Save picture").click()
    assert saved.value.suggested_filename == "red-circle.png"
    with Image.open(saved.value.path()) as image:
        assert image.width == 1024
        assert image.height > 1024, "the sentence stands below"
        map_, plain = image.convert("RGB").crop((0, 0, 1024, 1024)), Image.open(_sample(page)).convert("RGB")
        assert map_.resize((64, 64)).tobytes() != plain.resize((64, 64)).tobytes()
        assert image.convert("RGB").getpixel((5, image.height - 3)) == (255, 255, 255)
    page.get_by_role("button", name="Copy as JSON").click()
    page.locator("#action-message", has_text="Copied.").wait_for()
    copied = json.loads(page.evaluate("() => navigator.clipboard.readText()"))
    assert (copied["query"], copied["rows"], copied["columns"], copied["threshold"]) == ("red circle", 14, 14, 0.5)
    assert len(copied["relevance"]) == 196
    assert f"relevance {max(copied['relevance']):.2f}" in line(page)
    page.get_by_role("button", name="Share link").click()
    page.locator("#action-message", has_text="Link copied.").wait_for()
    assert page.evaluate("() => navigator.clipboard.readText()") == page.url


def test_the_six_lines_on_the_page_run_in_a_page_of_ones_own(browser: Browser, bundle: Path, tmp_path: Path) -> None:
    with Host({"/bundle/": bundle, "/app/": tmp_path}) as host:
        context = browser.new_context(service_workers="block", permissions=list(CLIPBOARD))
        context.set_default_timeout(PATIENCE)
        page = context.new_page()
        page.goto(f"{host.url}bundle/?q=circle&sample=006")
        answered(page, "circle")
        page.get_by_role("button", name="Copy code").click()
        page.locator("#code-message", has_text="Copied.").wait_for()
        code = page.evaluate("() => navigator.clipboard.readText()")
        assert code == page.inner_text("#code")
        assert len(code.splitlines()) == 6
        found = float(re.findall(r"relevance ([\d.]+)\.$", line(page))[0])
        (tmp_path / "own.html").write_text(f"<!doctype html><title>Mine</title>{code}")
        own, said = context.new_page(), list[str]()
        own.on("console", lambda message: said.append(message.text))
        own.goto(f"{host.url}app/own.html")
        until(own, lambda: [text for text in said if text.startswith("true ")], "what the code writes")
        assert float(said[-1].split()[1]) == pytest.approx(found, abs=0.01)
        context.close()


@pytest.mark.nightly
def test_a_result_that_cannot_be_copied_says_so(page: Page) -> None:
    page.evaluate("() => { navigator.clipboard.writeText = () => Promise.reject(new Error('no')); }")
    page.get_by_role("button", name="Copy as JSON").click()
    page.locator("#action-message", has_text="The browser does not allow copying.").wait_for()


def _flat() -> bytes:
    picture, stream = Image.new("RGB", (224, 224), (255, 255, 255)), io.BytesIO()
    picture.paste((200, 40, 40), (40, 40, 130, 160))
    picture.save(stream, "PNG")
    return stream.getvalue()


def _sample(page: Page) -> io.BytesIO:
    """The picture of the sample that is shown."""
    address = page.locator('.tile[aria-pressed="true"] img').get_attribute("data-src") or ""
    return io.BytesIO(page.context.request.get(address).body())
