"""The page on narrow, low and enlarged screens, in forced colours, and where it cannot run."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.web.conftest import DESKTOP, PATIENCE, Opener, ready

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

NARROW, SIDEWAYS, ENLARGED = (320, 640), (844, 390), (640, 430)  # the last is 1280 x 860 at 200 %


def test_nothing_is_cut_off(page: Page) -> None:
    page.locator("#words summary").click()
    for width, height in (NARROW, SIDEWAYS, ENLARGED):
        page.set_viewport_size({"width": width, "height": height})
        assert page.evaluate("() => document.documentElement.scrollWidth <= innerWidth"), width
        left = [page.locator(part).bounding_box() for part in ("#map-a", ".results")]
        assert left[0]
        assert left[1]
        assert (left[1]["x"] > left[0]["x"] + 99) == (width > height), "beside each other where the screen is low"


@pytest.mark.nightly
def test_what_is_chosen_shows_in_forced_colours(open_page: Opener) -> None:
    page = open_page(forced_colors="active", **DESKTOP)
    ready(page)
    look = "(e, name) => getComputedStyle(e)[name]"
    chosen, other = (
        page.locator(f'#views input[value="{view}"] + span').evaluate(look, "backgroundColor")
        for view in ("heat", "focus")
    )
    assert chosen != other
    tiles = page.locator("[data-sample]").all()
    outlines = {tile.get_attribute("aria-pressed"): tile.evaluate(look, "outlineStyle") for tile in tiles}
    assert outlines["true"] == "solid"
    assert outlines["false"] == "none"


@pytest.mark.nightly
def test_what_was_found_is_said_and_no_milliseconds(page: Page) -> None:
    said = page.locator('[role="status"], [aria-live="polite"], [role="alert"]').all_inner_texts()
    assert any(text.startswith("Found “red circle”: ") for text in said)
    assert not any(" ms" in text for text in said)


def test_it_can_be_installed_as_an_app(open_page: Opener) -> None:
    page = open_page(**DESKTOP)
    session = page.context.new_cdp_session(page)
    found = session.send("Page.getAppManifest")
    assert found["errors"] == []
    assert json.loads(found["data"])["display"] == "standalone"


def test_opened_as_a_file_it_says_what_to_do(browser: Browser, bundle: Path) -> None:
    context = browser.new_context()
    context.set_default_timeout(PATIENCE)
    page = context.new_page()
    page.goto((bundle / "index.html").as_uri())
    page.locator(".unserved", has_text="edgekit demo").wait_for()
    assert page.locator("#page").is_hidden()
    assert len(page.inner_text("body").split()) < 80
    context.close()


def test_a_screen_reader_finds_the_way_from_the_query_to_the_result(page: Page) -> None:
    """By roles and names alone, as the browser's accessibility tree has them."""
    field = page.get_by_role("region", name="Query").get_by_role("combobox", name="Look for")
    field.fill("stri")
    field.press("ArrowDown")
    assert page.get_by_role("option", selected=True).all_inner_texts() == ["striped"]
    field.press("Enter")
    picture = page.get_by_role("region", name="Picture and relevance")
    picture.get_by_role("status").filter(has_text="Found “striped”: ").wait_for()
    named = re.compile(r"^Relevance map for “striped”: most relevant at the [a-z ]+ \(row \d+, column \d+\)$")
    map_ = picture.get_by_role("application", name=named)
    assert "Arrow keys move between patches" in map_.evaluate("(e) => e.ariaDescribedByElements[0].textContent")
    results = page.get_by_role("complementary", name="Results")
    best = results.get_by_role("region", name="Most relevant patches").get_by_role("listitem").first
    assert re.fullmatch(
        r"Rank 1: relevance [01]\.\d\d, \d+ tokens", best.get_by_role("button").get_attribute("aria-label") or ""
    )
    results.get_by_role("img", name=re.compile(r"^Histogram of tokens per patch: from \d+ to \d+$")).wait_for()
    for name in ("Camera", "Open", "Test again", "Measure all precisions", "Share link", "Clear stored models"):
        assert page.get_by_role("button", name=name, exact=True).count() == 1, name
    for name in ("View", "Device", "Precision", "Compare with"):
        assert page.get_by_role("group", name=name, exact=True).get_by_role("radio", checked=True).count() == 1, name
