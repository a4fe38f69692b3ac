"""What a first visit to a bundle's page transfers, with brotli: `python -m tests.web.first_visit BUNDLE`.

Chromium opens the page with an empty profile; what it asks for until the first answer is counted, each file in brotli's
best quality where that is smaller, whatever the server at hand sends. What may come after the answer is held back until
then: if the answer needed it, there would be none.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Route

LATER = ("golden.json", "golden.bin", "embeddings.bin")
SAMPLES = "samples/"
QUALITY, WINDOW = 11, 24  # as in a bundle that is not made by a test
ANSWERED = """() => (document.querySelector("#map-a canvas")?.ariaLabel ?? "").includes("\u201c")"""


@dataclass(frozen=True)
class Visit:
    """Paths in the bundle that were asked for, in their order, by the page and its workers.

    Attributes:
        first: Until the first answer stood on the page.
        later: Held back until then: the golden vectors, the words' vectors and the pictures of other samples.
    """

    first: tuple[str, ...]
    later: tuple[str, ...]


def visit(browser: Browser, url: str, patience: float = 60_000) -> Visit:
    """Open the page as somebody does who never was there; `patience` in milliseconds."""
    context = browser.new_context(
        service_workers="block"
    )  # the worker comes after the answer, and stores what was loaded
    samples = [sample["file"] for sample in context.request.get(f"{url}samples.json").json()["samples"]]
    later = {*LATER, *samples[1:]}
    asked: list[str] = []
    held: dict[str, Route] = {}

    def hold(route: Route) -> None:
        path = _path(route.request.url)
        if path in later:
            held[path] = route
        else:
            route.continue_()

    context.route("**/*", hold)
    context.on("request", lambda request: asked.append(_path(request.url)))
    page = context.new_page()
    page.goto(f"{url}?device=wasm")
    page.wait_for_function(ANSWERED, timeout=patience, polling=20)
    first = tuple(path for path in asked if path not in later)
    deadline = time.monotonic() + patience / 1000
    while later - held.keys() and time.monotonic() < deadline:
        page.wait_for_timeout(10)  # Playwright handles events only inside of its own calls
    for route in held.values():
        route.continue_()
    context.close()
    return Visit(first, tuple(held))


def _path(url: str) -> str:
    return unquote(urlsplit(url).path).lstrip("/") or "index.html"


def transferred(bundle: Path, paths: tuple[str, ...]) -> Mapping[str, int]:
    """Bytes of each path with brotli, in the order of size."""
    import brotli

    sizes = {}
    for path in dict.fromkeys(paths):
        data = (bundle / path).read_bytes()
        sizes[path] = min(len(data), len(brotli.compress(data, quality=QUALITY, lgwin=WINDOW)))
    return dict(sorted(sizes.items(), key=lambda item: -item[1]))


def main(bundle: Path) -> None:
    """Measure and print."""
    from playwright.sync_api import sync_playwright

    from edgekit_targets.web import browser
    from edgekit_targets.web.server import Server

    with sync_playwright() as playwright, Server(bundle) as server:
        chromium = playwright.chromium.launch(executable_path=browser.find_chromium(), args=list(browser.QUIET))
        found = visit(chromium, server.url)
        chromium.close()
    for title, paths in (("until the first answer", found.first), ("after it", found.later)):
        sizes = transferred(bundle, paths)
        print(f"{title}: {sum(sizes.values()) / 1e6:.3f} MB with brotli, {len(paths)} requests")
        for path, size in sizes.items():
            print(f"{size:10,} {path}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
