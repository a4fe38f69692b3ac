"""What the library asks the network for, and what it does when that is slow or wrong."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.web.conftest import DESKTOP, PATIENCE, Opener, ready
from tests.web.driving import load, no_workers, stored, until
from tests.web.host import Host
from tests.web.test_page import answered

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page


def test_a_page_instead_of_the_manifest_is_named(library: Page) -> None:
    library.route("**/manifest.json", lambda route: route.fulfill(content_type="text/html", body="<p>404</p>"))
    error = load(library)
    assert error["code"] == "ASSET_MISSING"
    assert "HTML page instead" in error["message"]


PROGRESS = """async () => { const { Bundle, load } = await import(new URL("edgekit.js", location.href).href);
  const seen = {};
  const progress_callback = ({ status, file, loaded, total }) => {
    if (status === "progress") (seen[file] ??= []).push(loaded / total);
  };
  const runner = await load(await Bundle.open("./"), { device: "wasm", dtype: "fp32", progress_callback });
  await runner.dispose();
  return seen; }"""


def test_the_runtimes_bytes_are_counted_while_they_arrive_and_the_manifest_is_fetched_once(
    browser: Browser, bundle: Path
) -> None:
    asked: list[str] = []
    # Shares are reported at intervals from the page's start: the runtime must not be there before the first.
    with _slow(browser, bundle, lambda path: time.sleep(1.0 * path.endswith(".wasm"))) as page:
        page.on("request", lambda request: asked.append(request.url))
        seen = page.evaluate(PROGRESS)
    (runtime,) = [shares for file, shares in seen.items() if file.endswith(".wasm")]
    assert any(0 < share < 1 for share in runtime), runtime
    assert runtime == sorted(runtime)
    assert runtime[-1] == 1
    assert len([url for url in asked if url.endswith("manifest.json")]) == 1


@pytest.mark.nightly
def test_a_warm_load_asks_no_server_for_the_model(library: Page) -> None:
    asked: list[str] = []
    library.on("request", lambda request: asked.append(request.url))
    load(library, device="wasm")
    stored(library)
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


@pytest.mark.nightly
def test_a_slow_download_of_the_runtime_is_no_time_out(browser: Browser, bundle: Path) -> None:
    # The download must really take longer than the time limit, which the rest keeps without it, on a slow machine too.
    with _slow(browser, bundle, lambda path: time.sleep(10.0 * path.endswith(".wasm"))) as page:
        info = load(page, device="wasm", dtype="fp32", timeout=8000)
        assert (info["device"], info["fallbacks"]) == ("wasm", [])


def test_an_abort_while_the_runtime_comes_ends_its_worker(browser: Browser, bundle: Path) -> None:
    requested, release = threading.Event(), threading.Event()

    def hold(path: str) -> None:
        if path.endswith(".wasm"):
            requested.set()
            release.wait(60)

    with _slow(browser, bundle, hold) as page:
        page.evaluate(
            """async () => { const { load } = await import(new URL("edgekit.js", location.href).href);
              globalThis.control = new AbortController();
              globalThis.loading = load("./", { device: "wasm", signal: control.signal }).catch((e) => e.name); }"""
        )
        until(page, requested.is_set, "the runtime is requested")
        assert page.evaluate("() => { control.abort(); return loading; }") == "AbortError"
        assert not release.is_set()
        no_workers(page)
        release.set()


@pytest.mark.nightly(but=("more",))
@pytest.mark.parametrize("more", [b"", b"more"])
def test_a_stale_file_is_asked_for_again(library: Page, bundle: Path, more: bytes) -> None:
    fresh = (bundle / "golden.bin").read_bytes()
    stale = bytes(len(fresh)) + more
    answers = [stale, fresh]
    library.route("**/golden.bin", lambda route: route.fulfill(body=answers.pop(0)))
    info = load(library, device="wasm")
    assert (info["dtype"], info["fallbacks"], answers) == ("q8", [], [])


@contextmanager
def _slow(browser: Browser, bundle: Path, hold: Callable[[str], None]) -> Iterator[Page]:
    with Host({"/": bundle}, hold=hold) as host:
        context = browser.new_context(service_workers="block")
        context.set_default_timeout(PATIENCE)
        page = context.new_page()
        page.goto(f"{host.url}manifest.json")
        yield page
        context.close()


@pytest.mark.nightly
def test_words_without_their_vectors_are_an_error_and_answered_when_the_file_comes(
    open_page: Opener, bundle: Path, url: str
) -> None:
    """The first sample's query has its vector; the others' words wait for the table."""
    page = open_page("manifest.json", service_workers="block", **DESKTOP)
    page.route("**/embeddings.bin", lambda route: route.abort())
    page.goto(url)
    ready(page)
    page.fill("#query", "blue")
    page.press("#query", "Enter")
    page.locator("#notice", has_text="embeddings.bin").wait_for()
    page.unroute("**/embeddings.bin")
    page.fill("#query", "star")
    page.press("#query", "Enter")
    answered(page, "star")
    assert page.locator("#notice").is_hidden()
    wrong = bytearray((bundle / "embeddings.bin").read_bytes())
    wrong[0] ^= 1
    page.route("**/embeddings.bin", lambda route: route.fulfill(body=bytes(wrong)))
    page.goto(url)
    ready(page)
    page.fill("#query", "blue")
    page.press("#query", "Enter")
    page.locator("#notice", has_text="embeddings.bin").wait_for()
    assert "sha256" in page.inner_text("#notice")
