"""What the library asks the network for, and what it does when that is slow or wrong."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.web.driving import load, until
from tests.web.host import Host

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page


CACHED = """async () => { const { isCached } = await import(new URL("edgekit.js", location.href).href);
  return isCached("./", { device: "wasm" }); }"""


def test_a_page_instead_of_the_manifest_is_named(library: Page) -> None:
    library.route("**/manifest.json", lambda route: route.fulfill(content_type="text/html", body="<p>404</p>"))
    error = load(library)
    assert error["code"] == "ASSET_MISSING"
    assert "HTML page instead" in error["message"]


def test_a_warm_load_asks_no_server_for_the_model(library: Page) -> None:
    asked: list[str] = []
    library.on("request", lambda request: asked.append(request.url))
    load(library, device="wasm")
    until(library, lambda: library.evaluate(CACHED), "the model in the cache")
    library.reload()
    info = load(library, device="wasm")
    assert info["fromCache"]
    assert len([url for url in asked if url.endswith(".onnx")]) == 1  # by the first load
    cached = """async () => {
      const { isCached, clearCache } = await import(new URL("edgekit.js", location.href).href);
      const here = () => isCached("./", { device: "wasm" });
      return [await here(), await clearCache("./"), await here()]; }"""
    assert library.evaluate(cached) == [True, 1, False]


def test_preload_fetches_without_starting(library: Page) -> None:
    code = """async () => { const { preload, isCached } = await import(new URL("edgekit.js", location.href).href);
      const seen = [];
      await preload("./", { device: "wasm", dtype: "fp16", progress_callback: (event) => seen.push(event) });
      return [await isCached("./", { device: "wasm", dtype: "fp16" }), seen.at(-1).status,
              seen.filter((e) => e.status === "progress_total").at(-1).progress]; }"""
    assert library.evaluate(code) == [True, "ready", 100]
    assert library.workers == []


def test_an_aborted_load_stops_and_leaves_nothing(library: Page) -> None:
    code = """async () => { const { load } = await import(new URL("edgekit.js", location.href).href);
      const control = new AbortController(); setTimeout(() => control.abort(), 5);
      return load("./", { device: "wasm", signal: control.signal }).then(() => "loaded", (e) => e.name); }"""
    assert library.evaluate(code) == "AbortError"
    until(library, lambda: not library.workers, "the end of the worker")


def test_a_slow_download_of_the_runtime_is_no_time_out(browser: Browser, bundle: Path) -> None:
    with _slow(browser, bundle, lambda path: 4.0 if path.endswith(".wasm") else 0.0) as page:
        info = load(page, device="wasm", dtype="fp32", timeout=2000)
        assert (info["device"], info["fallbacks"]) == ("wasm", [])


def test_an_abort_while_the_runtime_comes_ends_its_worker(browser: Browser, bundle: Path) -> None:
    with _slow(browser, bundle, lambda path: 8.0 if path.endswith(".wasm") else 0.0) as page:
        code = """async () => { const { load } = await import(new URL("edgekit.js", location.href).href);
          const control = new AbortController(); setTimeout(() => control.abort(), 500);
          const before = performance.now();
          const how = await load("./", { device: "wasm", signal: control.signal }).catch((e) => e.name);
          return [how, performance.now() - before]; }"""
        how, took = page.evaluate(code)
        assert how == "AbortError"
        assert took < 6000
        until(page, lambda: not page.workers, "the end of the worker")


@pytest.mark.parametrize("more", [b"", b"more"])
def test_a_stale_file_is_asked_for_again(library: Page, bundle: Path, more: bytes) -> None:
    fresh = (bundle / "golden.bin").read_bytes()
    stale = bytes(len(fresh)) + more
    answers = [stale, fresh]
    library.route("**/golden.bin", lambda route: route.fulfill(body=answers.pop(0)))
    info = load(library, device="wasm")
    assert (info["dtype"], info["fallbacks"], answers) == ("q8", [], [])


@contextmanager
def _slow(browser: Browser, bundle: Path, delay: Callable[[str], float]) -> Iterator[Page]:
    with Host({"/": bundle}, delay=delay) as host:
        context = browser.new_context(service_workers="block")
        page = context.new_page()
        page.goto(f"{host.url}manifest.json")
        yield page
        context.close()
