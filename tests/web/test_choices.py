"""Choices that follow each other on the page: what is shown belongs to what was chosen last."""

from __future__ import annotations

import itertools
import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from edgekit_arrcoc.queries import ATTRIBUTES, CONCEPTS, DRAWN, OBJECT, OUTLINE
from tests.web.conftest import DESKTOP, Opener, ready
from tests.web.driving import stored, until
from tests.web.pictures import png
from tests.web.small_bundle import CREDIT
from tests.web.test_page import answered

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page, Route


# Keeps the sizes of decoded files, each after the page has used its picture.
DECODED = """globalThis.decoded = []; const decode = globalThis.createImageBitmap.bind(globalThis);
globalThis.createImageBitmap = async (...source) => {
  const picture = await decode(...source);
  setTimeout(() => { globalThis.decoded.push(source[0].size); });
  return picture;
};"""


def choose(page: Page, group: str, name: str) -> None:
    page.locator(f"#{group} label", has_text=name).click()


def ask(page: Page, query: str) -> None:
    page.fill("#query", query)
    page.press("#query", "Enter")


@pytest.mark.nightly
def test_only_answers_to_one_query_are_compared(page: Page) -> None:
    choose(page, "compare", "fp32")
    page.locator("#difference", has_text="largest score difference").wait_for()
    page.evaluate(
        """() => { globalThis.seen = []; const line = document.querySelector("#difference");
          const query = (view) => /“(.*)”/.exec(document.querySelector(`${view} canvas`).ariaLabel)?.[1];
          new MutationObserver(() => seen.push([line.textContent, query("#map-a"), query("#map-b")]))
            .observe(line, { childList: true }); }"""
    )
    for word in ("blue", "star", "ring"):
        ask(page, word)
        page.locator(f'#map-b canvas[aria-label*="“{word}”"]').wait_for()
        page.locator("#difference", has_text="largest score difference").wait_for()
    compared = [(a, b) for text, a, b in page.evaluate("() => seen") if "largest" in text]
    assert len(compared) >= 3
    assert all(a == b for a, b in compared)


def held_sample(page: Page, name: str) -> list[Route]:
    """Hold the picture of a sample back from now on, not that of its tile; what was held."""
    held: list[Route] = []

    def hold(route: Route) -> None:
        if route.request.resource_type == "fetch":
            held.append(route)
        else:
            route.continue_()

    page.route(f"**/samples/{name}.png", hold)
    return held


def tile(page: Page, name: str) -> Locator:
    return page.locator(f'[data-sample="{name}"]')


@pytest.mark.nightly
def test_a_sample_that_comes_late_replaces_no_later_one(open_page: Opener, url: str, bundle: Path) -> None:
    page = open_page("manifest.json", service_workers="block", **DESKTOP)
    page.add_init_script(DECODED)
    held = held_sample(page, "001")
    page.goto(url)
    ready(page)
    tile(page, "001").click()
    tile(page, "003").click()
    page.locator('[data-sample="003"][aria-pressed="true"]').wait_for()
    until(page, lambda: held, "the picture of the first sample is asked for")
    held[0].continue_()
    size = (bundle / "samples" / "001.png").stat().st_size
    page.wait_for_function("(size) => globalThis.decoded.includes(size)", arg=size)
    assert tile(page, "003").get_attribute("aria-pressed") == "true"
    assert tile(page, "001").get_attribute("aria-pressed") == "false"


def test_a_sample_from_a_photograph_names_its_author(page: Page) -> None:
    tile(page, "001").click()
    page.locator("#credit", has_text=CREDIT).wait_for()
    tile(page, "003").click()
    page.locator("#credit").wait_for(state="hidden")


@pytest.mark.nightly
def test_what_is_asked_after_the_shown_sample_stays(page: Page) -> None:
    """The picture is there: it is not fetched again, so that nothing can come later and replace the query."""
    fetched = page.evaluate("""() => {
      const own = globalThis.fetch, fetched = [];
      globalThis.fetch = (...asked) => { fetched.push(String(asked[0])); return own(...asked); };
      document.querySelector("[data-sample][aria-pressed=true]").click();
      document.querySelector("#query-status button").click();
      globalThis.fetch = own;
      return fetched;
    }""")
    assert [address for address in fetched if "samples" in address] == []
    asked = page.input_value("#query")
    answered(page, asked)
    assert page.input_value("#query") == asked


@pytest.mark.nightly(but=("[]",))
@pytest.mark.parametrize("path", ["", "?q=yellow+ring"])
def test_what_is_typed_while_a_picture_comes_stays(open_page: Opener, url: str, path: str) -> None:
    page = open_page("manifest.json", service_workers="block", **DESKTOP)
    held = held_sample(page, "000")
    page.goto(url + path)
    until(page, lambda: held, "the first picture is asked for")
    page.fill("#query", "star")
    held[0].continue_()
    answered(page, "star")
    assert page.input_value("#query") == "star"
    assert "q=star" in page.url
    held.clear()
    tile(page, "003").click()
    page.locator('[data-sample="003"][aria-pressed="true"]').wait_for()
    tile(page, "000").click()
    until(page, lambda: held, "the other picture is asked for")
    page.fill("#query", "blue")
    held[0].continue_()
    page.locator('[data-sample="000"][aria-pressed="true"]').wait_for()
    answered(page, "blue")
    assert page.input_value("#query") == "blue"


@pytest.mark.nightly
def test_two_steps_back_at_once_show_the_second(open_page: Opener, url: str) -> None:
    """The picture of both is still on its way when the second step is taken."""
    page = open_page("manifest.json", service_workers="block", **DESKTOP)
    page.goto(url)
    ready(page)
    tile(page, "002").click()
    answered(page, "striped")
    ask(page, "red")
    answered(page, "red")
    tile(page, "003").click()
    page.locator('[data-sample="003"][aria-pressed="true"]').wait_for()
    held = held_sample(page, "002")
    for query in ("red", "striped"):
        page.go_back()
        page.wait_for_url(f"**q={query}*")
    until(page, lambda: len(held) == 2, "the picture is asked for twice")
    for route in held:
        route.continue_()
    page.locator('[data-sample="002"][aria-pressed="true"]').wait_for()
    answered(page, "striped")
    assert page.input_value("#query") == "striped"
    assert "q=striped" in page.url


@pytest.mark.nightly
def test_a_hint_that_stays_is_not_made_again(page: Page) -> None:
    """Else a press on its button would be lost where the button is made again under it."""
    page.evaluate("() => { globalThis.hint = document.querySelector('#query-status button'); }")
    page.press("#query", "Enter")
    assert page.evaluate("() => hint.isConnected")
    ask(page, "blue")
    assert not page.evaluate("() => hint.isConnected")


@pytest.mark.nightly
def test_an_error_of_what_is_not_asked_any_more_is_not_shown(open_page: Opener, url: str) -> None:
    page = open_page("manifest.json", service_workers="block", **DESKTOP)
    held: list[Route] = []
    page.route("**/embeddings.bin", lambda route: held.append(route))
    page.goto(url)
    ready(page)
    page.evaluate(
        """() => { globalThis.notices = []; const notice = document.querySelector("#notice");
          new MutationObserver(() => { if (!notice.hidden) notices.push(notice.textContent); })
            .observe(notice, { attributeFilter: ["hidden"] }); }"""
    )
    ask(page, "blue")
    until(page, lambda: held, "the vectors of words are asked for")
    ask(page, "")
    page.locator("#answer-line", has_text="Type a word").wait_for()
    with page.expect_event("requestfailed"):
        held[0].abort()
    ask(page, "red circle")  # its vector came with its sample
    answered(page, "red circle")
    assert page.evaluate("() => notices") == []


@pytest.mark.nightly
def test_a_choice_that_fails_says_why_and_goes_back(open_page: Opener, url: str) -> None:
    page = open_page("manifest.json", service_workers="block", **DESKTOP)
    page.goto(url)
    ready(page)
    stored(page)
    page.click("#clear-cache")  # else the stored fp16 model would be used: its bytes are those of int8 here
    page.locator("#panel-message", has_text="1 stored model removed").wait_for()
    page.route("**/*.onnx", lambda route: route.abort())
    choose(page, "dtype", "fp32")
    page.locator("#notice", has_text="cannot be fetched").wait_for()
    page.locator('#dtype input[value="auto"]:checked').wait_for(state="attached")
    assert page.is_visible("#notice")
    assert "dtype" not in page.url
    assert "int8" in page.inner_text("#status-text")


@pytest.mark.nightly
def test_an_unknown_word_clears_the_answer_of_the_query_before(page: Page) -> None:
    ask(page, "xqzwv")
    page.locator("#answer-line", has_text='No answer: the model does not know "xqzwv".').wait_for()
    page.locator("#savings", has_text="–").wait_for()
    assert page.locator("#top-patches li").count() == 0
    assert "“" not in (page.locator("#map-a canvas").get_attribute("aria-label") or "")
    page.locator("#file").set_input_files({"name": "own.png", "mimeType": "image/png", "buffer": png(90, 50)})
    page.locator('.tile[aria-pressed="true"]').wait_for(state="detached")
    assert page.inner_text("#savings") == "–"
    ask(page, "")
    page.locator("#answer-line", has_text="Type a word").wait_for()
    ask(page, "red")
    answered(page, "red")
    assert "red" in page.inner_text("#answer-line")


@pytest.mark.nightly
def test_the_map_of_an_earlier_query_is_marked_while_another_is_typed(page: Page) -> None:
    """Every change of the mark is kept: it lasts only until the next answer, which may come before a test can look."""
    page.evaluate(
        """() => { globalThis.marks = []; const map = document.querySelector("#map-a");
          new MutationObserver(() => marks.push("stale" in map.dataset))
            .observe(map, { attributeFilter: ["data-stale"] }); }"""
    )
    assert page.locator("#map-a[data-stale]").count() == 0
    page.locator("#query").press_sequentially("gre")
    page.fill("#query", "green")
    answered(page, "green")
    marks = page.evaluate("() => marks")
    assert (marks[:1], marks[-1:]) == ([True], [False])


@pytest.mark.nightly
def test_words_are_chosen_by_kind(page: Page) -> None:
    page.locator("#words summary", has_text="All 832 words").click()
    kinds = page.locator("#word-kinds section")
    kinds.first.wait_for()
    assert [k.get_attribute("aria-label") for k in kinds.all()] == [
        "Sizes",
        "Colours",
        "Patterns",
        "Shapes",
        "Any object, and borders",
        "Things",
    ]
    shown = page.locator("#word-kinds button").all_inner_texts()
    drawn, things = shown[: len(DRAWN)], shown[len(DRAWN) :]
    assert [text.split()[0] for text in drawn] == [*itertools.chain(*ATTRIBUTES), OBJECT, OUTLINE]
    assert len(" ".join(drawn).replace(",", " ").split()) == 82  # synonyms stand beside
    assert tuple(things) == CONCEPTS[len(DRAWN) :]
    assert "kitten" in (page.locator("#word-kinds button", has_text=re.compile("^cat$")).get_attribute("title") or "")
    for word, query in (("blue", "blue circle"), ("large", "large blue circle"), ("blue", "large circle")):
        page.locator("#word-kinds button", has_text=word).first.click()
        answered(page, query)
        assert page.input_value("#query") == query


@pytest.mark.nightly
def test_a_picture_keeps_its_shape(page: Page) -> None:
    page.locator("#file").set_input_files({"name": "own.png", "mimeType": "image/png", "buffer": png(400, 200)})
    page.locator("#patch-count", has_text="10 rows of 20").wait_for()


@pytest.mark.nightly
def test_the_patch_under_the_cursor_stays_described(page: Page) -> None:
    page.focus("#map-a canvas")
    page.keyboard.press("End")
    named = page.inner_text("#patch-name")
    assert named.startswith("Row ")
    example = page.locator("#query-status button").first
    query = example.inner_text()
    page.evaluate("() => { document.querySelector('#top-patches li').dataset.old = ''; }")
    example.click()
    answered(page, query)
    page.locator("#top-patches [data-old]").wait_for(state="detached")
    assert page.inner_text("#patch-name") == named


def answering(open_page: Opener, manifest: dict[str, Any], url: str) -> Page:
    """The page of a bundle with another manifest, after its first answer."""
    page = open_page("manifest.json", service_workers="block", **DESKTOP)
    page.route("**/manifest.json", lambda route: route.fulfill(json=manifest))
    page.goto(url)
    page.locator("#top-patches button").first.wait_for()
    return page


def test_models_without_counts_or_words(open_page: Opener, url: str, bundle: Path) -> None:
    plain: dict[str, Any] = json.loads((bundle / "manifest.json").read_bytes())
    for output in plain["outputs"]:
        output["role"] = "tensor" if output["role"] == "counts" else output["role"]
    plain["bundle"]["golden"] = ""
    page = answering(open_page, plain, url)
    assert not page.is_visible("#savings")
    assert page.is_disabled('#views input[value="tokens"]')
    assert "NaN" not in page.inner_text("body")
    plain["files"] = [f for f in plain["files"] if f["path"] != "embeddings.bin"]
    page.goto(url)
    page.locator("#query-status", has_text="needs a query vector").wait_for()
    assert page.is_disabled("#query")
    assert not page.is_visible("#notice")


def test_an_unverified_precision_is_taken_on_request_only_and_marked(open_page: Opener, url: str, bundle: Path) -> None:
    plain: dict[str, Any] = json.loads((bundle / "manifest.json").read_bytes())
    plain["verdicts"] = [v for v in plain["verdicts"] if v["place"] != "wasm-q8"]
    plain["verdicts"].append({"place": "wasm-q8", "status": "not verified here", "reason": "no browser"})
    page = answering(open_page, plain, f"{url}?device=wasm")
    assert "fp32" in page.inner_text("#status-text")
    assert "not verified" in page.inner_text('#dtype input[value="q8"] + span')
    choose(page, "dtype", "int8")
    page.locator("#status-text", has_text="int8").wait_for()
    assert "not verified" in page.inner_text("#status-text")
    assert page.get_attribute("#status", "data-state") == "warn"


def test_a_bundle_in_which_nothing_was_verified_runs_fp32_and_says_so(
    open_page: Opener, url: str, bundle: Path
) -> None:
    plain: dict[str, Any] = json.loads((bundle / "manifest.json").read_bytes())
    plain["verdicts"] = []
    page = answering(open_page, plain, f"{url}?device=wasm")
    assert "fp32" in page.inner_text("#status-text")
    assert "not verified" in page.inner_text("#status-text")
    assert page.get_attribute("#status", "data-state") == "warn"
