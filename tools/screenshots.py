"""The pictures of the documentation: `python tools/screenshots.py BUILD` writes web/docs/*.webp.

BUILD is what `edgekit export -t web` leaves, with its report. Each picture is a view of the page or of the report as a
visitor has it, at most 1200 pixels wide, as WebP.
"""

from __future__ import annotations

import io
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from PIL import Image
from playwright.sync_api import Browser, Page

from edgekit_targets.web import browser as chromium
from edgekit_targets.web.server import Server

OUT = Path(__file__).parents[1] / "web" / "docs"
WIDEST, QUALITY = 1200, 72
WIDE = {"viewport": {"width": 1200, "height": 860}}
PHONE = {"viewport": {"width": 390, "height": 844}, "is_mobile": True, "has_touch": True}
NARROW = {"viewport": {"width": 320, "height": 700}}
CAMERA = """navigator.mediaDevices.getUserMedia = async () => { const canvas = document.createElement("canvas");
  [canvas.width, canvas.height] = [640, 480];
  const picture = new Image(); picture.src = document.querySelectorAll("#strip img")[2].src;
  const draw = () => { canvas.getContext("2d").drawImage(picture, 0, 0, 640, 480); requestAnimationFrame(draw); };
  draw();
  return canvas.captureStream(); };"""


def nothing(page: Page) -> None:
    """The page as it opens."""


def camera(page: Page) -> None:
    page.evaluate(CAMERA)
    page.fill("#query", "circle")
    page.click("#start-camera")
    page.locator("#live-rate", has_text="frames/s").wait_for()


def precisions(page: Page) -> None:
    page.click("#measure-precisions")
    page.locator("#panel-message", has_text="Fastest here").wait_for()
    page.locator("#precisions summary").click()


def not_found(page: Page) -> None:
    page.fill("#query", "large pink heart")
    page.press("#query", "Enter")
    page.locator("#answer-line[data-absent]").wait_for()


def words(page: Page) -> None:
    page.locator("#words summary").click()
    page.locator("#word-kinds button").first.wait_for()


def tokens(page: Page) -> None:
    page.locator("#views label", has_text="Tokens").click()


def compare(page: Page) -> None:
    page.locator("#compare label", has_text="fp32").click()
    page.locator("#difference", has_text="largest score difference").wait_for()


def printed(page: Page) -> None:
    page.emulate_media(media="print")
    page.add_style_tag(content="body { padding: 15mm }")  # a sheet's margins


@dataclass(frozen=True)
class View:
    """One picture: how the browser is set, what is done first, and whether the whole page or a part of it is shown."""

    options: dict[str, Any]
    act: Callable[[Page], None] = nothing
    whole: bool = False
    at: str = ""
    more: dict[str, Any] = field(default_factory=dict)


PAGE = {
    "desktop-light": View(WIDE),
    "desktop-dark": View(WIDE, more={"color_scheme": "dark"}),
    "phone": View(PHONE),
    "phone-dark": View(PHONE, more={"color_scheme": "dark"}),
    "narrow": View(NARROW),
    "tokens": View(WIDE, tokens),
    "compare": View(WIDE, compare),
    "words": View(WIDE, words),
    "nothing-found": View(WIDE, not_found),
    "camera": View(WIDE, camera),
    "camera-phone": View(PHONE, camera),
    "camera-dark": View(WIDE, camera, more={"color_scheme": "dark"}),
    "precisions": View(WIDE, precisions, at="#device-panel"),
    "precisions-narrow": View(NARROW, precisions, at="#precisions"),
    "precisions-dark": View(WIDE, precisions, at="#device-panel", more={"color_scheme": "dark"}),
    "forced-colours": View(WIDE, more={"forced_colors": "active"}),
}
REPORT = {
    "report": View({"viewport": {"width": 1200, "height": 1000}}),
    "report-phone": View(PHONE),
    "report-dark": View({"viewport": {"width": 1200, "height": 1000}}, more={"color_scheme": "dark"}),
    "report-print": View({"viewport": {"width": 794, "height": 1123}}, printed),  # A4 at 96 dots an inch
}


def main(build: Path, names: list[str]) -> None:
    """Take the pictures of these names, or all."""
    playwright, opened = chromium.launch(chromium.SOFTWARE_GPU)
    with Server(build / "web") as server:
        for name, view in PAGE.items():
            if not names or name in names:
                _take(opened, server.url, name, view, ready='document.querySelector("#savings").value.includes("%")')
    for name, view in REPORT.items():
        if not names or name in names:
            _take(opened, (build / "report.html").resolve().as_uri(), name, view, ready="true")
    opened.close()
    playwright.stop()


def _take(browser: Browser, url: str, name: str, view: View, ready: str) -> None:
    context = browser.new_context(reduced_motion="reduce", service_workers="block", **view.options, **view.more)
    context.set_default_timeout(120_000)
    page = context.new_page()
    page.goto(url)
    page.wait_for_function(f"() => {ready}")
    view.act(page)
    page.mouse.move(0, 0)
    page.evaluate("() => scrollTo(0, 0)")
    page.evaluate("() => new Promise((drawn) => requestAnimationFrame(() => requestAnimationFrame(drawn)))")
    shot = page.locator(view.at).screenshot() if view.at else page.screenshot(full_page=view.whole)
    picture = Image.open(io.BytesIO(shot)).convert("RGB")
    context.close()
    if picture.width > WIDEST:
        picture = picture.resize((WIDEST, round(picture.height * WIDEST / picture.width)))
    path = OUT / f"{name}.webp"
    picture.save(path, quality=QUALITY, method=6)
    print(f"{path.name}: {picture.width} x {picture.height}, {path.stat().st_size / 1000:.0f} KB")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
