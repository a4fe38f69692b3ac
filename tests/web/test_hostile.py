"""Files that are no pictures, or worse: each gets a sentence, and the page lives."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from tests.web.pictures import jpeg, png
from tests.web.test_page import answered

if TYPE_CHECKING:
    from playwright.sync_api import Page

SVG = b'<svg xmlns="http://www.w3.org/2000/svg"><script>alert(1)</script></svg>'
HOSTILE = (
    ("bomb.png", png(30_000, 30_000, rows=1), "bomb.png is 30000 x 30000 pixels (900 million)"),
    ("a.svg", SVG, "SVG drawing"),
    ("holiday.png", b"This is not a picture at all.", "Holiday.png is a text file"),
    ("half.jpg", jpeg()[:-200], "truncated or damaged"),
    ("odd.png", png(40, 40).replace(b"IDAT", b"IDAX"), "This browser cannot decode odd.png"),
    ("none.png", b"", "is empty"),
)


@pytest.mark.nightly
def test_hostile_pictures_get_a_sentence_and_the_page_lives(page: Page) -> None:
    for number, (file, data, sentence) in enumerate(HOSTILE):
        page.set_input_files("#file", {"name": file, "mimeType": "image/png", "buffer": data})
        page.locator("#notice", has_text=re.compile(re.escape(sentence), re.IGNORECASE)).wait_for()
        page.get_by_role("button", name="Dismiss").click()
        query = ("large star", "small star")[number % 2]
        page.fill("#query", query)
        answered(page, query)
