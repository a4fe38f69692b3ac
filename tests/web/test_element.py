"""<edgekit-map> in a page that is not ours: attributes in, a map, a sentence and an event out."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tests.web.conftest import PATIENCE
from tests.web.host import Host

if TYPE_CHECKING:
    from playwright.sync_api import Browser

PAGE = """<!doctype html><html lang="en"><title>embedding</title>
<script type="module" src="./bundle/edgekit-map.js"></script>
<script>document.addEventListener("DOMContentLoaded", () => { globalThis.events = [];
  const map = document.querySelector("edgekit-map");
  map.addEventListener("result", ({ detail }) => events.push(detail.relevance.length));
  map.addEventListener("error", ({ error }) => events.push(error.code)); });</script>
<edgekit-map bundle="./bundle/" image="./bundle/samples/000.png" query="red circle"></edgekit-map>"""
PIXELS = """() => { const canvas = document.querySelector("edgekit-map").shadowRoot.querySelector("canvas");
  return [...canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data].join(); }"""


def test_an_element_shows_the_map_of_its_attributes(browser: Browser, bundle: Path, tmp_path: Path) -> None:
    (tmp_path / "index.html").write_text(PAGE)
    with Host({"/": tmp_path, "/bundle/": bundle}) as host:
        context = browser.new_context()
        context.set_default_timeout(PATIENCE)
        page = context.new_page()
        page.goto(host.url)
        page.locator("edgekit-map p", has_text="Found “red circle”: ").wait_for()
        assert (page.locator("edgekit-map canvas").get_attribute("aria-label") or "").startswith(
            "Relevance map for “red"
        )
        heat = page.evaluate(PIXELS)
        map_ = page.locator("edgekit-map")
        map_.evaluate("(map) => map.setAttribute('view', 'picture')")
        assert page.evaluate(PIXELS) != heat
        map_.evaluate("(map) => map.setAttribute('view', 'heat')")
        assert page.evaluate(PIXELS) == heat
        map_.evaluate("(map) => map.setAttribute('query', 'xyzzy')")
        page.locator("edgekit-map p", has_text='the model does not know "xyzzy"').wait_for()
        assert page.evaluate("() => events") == [196, "QUERY"]
        assert page.evaluate(PIXELS) != heat, "no map of an earlier query"
        context.close()
