"""How long a visit takes, against a bare page that only runs the same model: `python tools/bench/visits.py BUNDLE`.

Every visit starts a browser of its own; cold visits an empty profile, warm visits the profile of the cold one, in which
somebody asked a few questions. The two pages take turns, and so do their runs, so that a busy machine slows both; a
ratio is the median over pairs of neighbours.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import BrowserContext, Page, Playwright, Request, Route, sync_playwright

from edgekit.artifact.store import read_artifact
from edgekit_targets.web import browser
from edgekit_targets.web.server import HEADERS, Server

VISITS = 7
RUNS = 60
WARM_UP = 10
LOOK = 4000  # ms that a visitor stays

BARE = """<!doctype html><title>bare</title><script type="module">
import * as ort from "./ort/ort.wasm.min.mjs?bare";
const at = (name) => new URL(`./ort/ort-wasm-simd-threaded.${name}?bare`, location.href).href;
ort.env.wasm.wasmPaths = { mjs: at("mjs"), wasm: at("wasm") };
ort.env.wasm.numThreads = 1;
const session = await ort.InferenceSession.create("./MODEL", { executionProviders: ["wasm"] });
const feeds = { images: new ort.Tensor("float32", new Float32Array(3 * 224 * 224).fill(0.5), [1, 3, 224, 224]),
                queries: new ort.Tensor("float32", new Float32Array(768).fill(0.1), [1, 768]) };
await session.run(feeds);
globalThis.first = performance.now();
globalThis.time = async () => {
  const start = performance.now();
  await session.run(feeds);
  return performance.now() - start;
};
</script>"""

WATCH = """addEventListener("DOMContentLoaded", () => {
  const canvas = document.querySelector("#map-a canvas");
  if (!canvas) return;
  new MutationObserver(() => { if (canvas.ariaLabel.includes("“")) globalThis.first ??= performance.now(); })
    .observe(canvas, { attributeFilter: ["aria-label"] });
});"""

LOAD = """async (dtype) => {
  const { load } = await import(new URL("edgekit.js", location.href).href);
  const runner = await load("./", { device: "wasm", dtype });
  const image = new ImageData(224, 224);
  globalThis.time = async () => (await runner.run({ image, query: "red" })).inference;
}"""
TIME = "() => globalThis.time()"


def main(bundle: Path) -> None:
    """Measure and print."""
    variants = {v.name: v.path for v in read_artifact(bundle).bundle.variants}
    dtype = "q8" if "q8" in variants else "fp32"
    bare = BARE.replace("MODEL", variants[dtype])
    visits = {"bare": ("bare.html", ["cold"]), "page": (f"?device=wasm&dtype={dtype}", ["cold", "warm"])}
    first: dict[str, list[float]] = {"bare cold": [], "page cold": [], "page warm": []}
    wire: dict[str, list[float]] = {name: [] for name in first}
    with Server(bundle) as server, sync_playwright() as playwright:
        for _ in range(VISITS):
            for name, (path, kinds) in visits.items():
                with tempfile.TemporaryDirectory() as profile:
                    for kind in kinds:
                        with _browser(playwright, profile) as context:
                            took, received = _visit(context, server.url + path, bare)
                        first[f"{name} {kind}"].append(took)
                        wire[f"{name} {kind}"].append(received)
        with tempfile.TemporaryDirectory() as profile, _browser(playwright, profile) as context:
            steady = _steady(context, server.url, bare, dtype)
    for name, times in first.items():
        each = ", ".join(f"{t:.0f}" for t in times)
        print(
            f"{name} first {statistics.median(times):7.1f} ms {statistics.median(wire[name]) / 1e6:6.2f} MB   ({each})"
        )
    for name, times in steady.items():
        print(f"{name} steady     {statistics.median(times):7.1f} ms")
    print(f"cold: page / bare   {_ratio(first['page cold'], first['bare cold'])}   (limit 1.6)")
    print(f"page: warm / cold   {_ratio(first['page warm'], first['page cold'])}   (limit 0.7)")
    print(f"steady: page / bare {_ratio(steady['page'], steady['bare'])}   (limit 1.1)")


def _ratio(times: list[float], others: list[float]) -> str:
    """Median over pairs of neighbours, and the middle half of them."""
    low, middle, high = statistics.quantiles((a / b for a, b in zip(times, others, strict=True)), n=4)
    return f"{middle:.2f} ({low:.2f} to {high:.2f})"


@contextmanager
def _browser(playwright: Playwright, profile: str) -> Iterator[BrowserContext]:
    context = playwright.chromium.launch_persistent_context(
        profile, executable_path=browser.find_chromium(), args=list(browser.QUIET), service_workers="allow"
    )
    try:
        yield context
    finally:
        context.close()


def _visit(context: BrowserContext, url: str, bare: str) -> tuple[float, float]:
    """Milliseconds to the first result, and bytes over the wire."""
    page = context.pages[0]
    received: list[Request] = []
    # Workers' requests are among them; a session of the page alone would not see those.
    page.on("requestfinished", lambda request: received.append(request))
    _open(page, url, bare)
    first = float(page.evaluate("() => globalThis.first"))
    wire = sum(float(request.sizes()["responseBodySize"]) for request in received)
    _look_around(page)
    return first, wire


def _look_around(page: Page) -> None:
    """What a visitor does, and time for the service worker and for the code cache, which waits until code is hot."""
    if page.locator("#query").count():
        for word in ("red", "star", "ring"):
            page.fill("#query", word)
            page.locator(f'#map-a canvas[aria-label*="“{word}”"]').wait_for()
    page.wait_for_timeout(LOOK)


def _open(page: Page, url: str, bare: str) -> None:
    """Open one of the two pages, and wait for its first result."""
    page.add_init_script(WATCH)
    if url.endswith("bare.html"):
        page.route("**/bare.html", lambda route: _fulfil(route, bare))
    page.goto(url)
    page.wait_for_function("() => globalThis.first", timeout=60_000, polling=50)


def _fulfil(route: Route, body: str) -> None:
    headers = {name: value for name, value in HEADERS.items() if name != "Content-Security-Policy"}
    route.fulfill(content_type="text/html", headers=headers, body=body)


def _steady(context: BrowserContext, url: str, bare: str, dtype: str) -> dict[str, list[float]]:
    """Milliseconds of warm runs; the two take turns."""
    pages = {"bare": context.pages[0], "page": context.new_page()}
    _open(pages["bare"], f"{url}bare.html", bare)
    pages["page"].goto(f"{url}manifest.json")
    pages["page"].evaluate(LOAD, dtype)
    times: dict[str, list[float]] = {name: [] for name in pages}
    for run in range(WARM_UP + RUNS):
        for name, page in pages.items():
            took = float(page.evaluate(TIME))
            if run >= WARM_UP:
                times[name].append(took)
    return times


if __name__ == "__main__":
    main(Path(sys.argv[1]))
