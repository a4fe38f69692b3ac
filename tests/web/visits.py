"""How long a visit takes, against a bare page that only runs the same model: `python tests/web/visits.py BUNDLE`.

Every visit starts a browser of its own; cold visits an empty profile, warm visits the profile of the cold one. The two
pages take turns, so that a busy machine slows both.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

from playwright.sync_api import Page, Playwright, Request, Route, sync_playwright

from edgekit import artifact
from edgekit.runtime import browser
from edgekit.serve import HEADERS, Server

VISITS = 5
RUNS = 60

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
const times = [];
for (let i = 0; i < RUNS; i++) {
  const start = performance.now();
  await session.run(feeds);
  times.push(performance.now() - start);
}
globalThis.steady = times.sort((a, b) => a - b)[times.length >> 1];
</script>"""

WATCH = """addEventListener("DOMContentLoaded", () => {
  const canvas = document.querySelector("#stage-a canvas");
  if (!canvas) return;
  new MutationObserver(() => { globalThis.first ??= performance.now(); })
    .observe(canvas, { attributeFilter: ["aria-label"] });
});"""

STEADY = """async (runs) => {
  const { load } = await import(new URL("edgekit.js", location.href).href);
  const runner = await load("./", { device: "wasm", dtype: DTYPE });
  const image = new ImageData(224, 224);
  const times = [];
  for (let i = 0; i < runs; i++) times.push((await runner.run({ image, query: "red" })).inference);
  return times.sort((a, b) => a - b)[times.length >> 1];
}"""


def main(bundle: Path) -> None:
    """Measure and print."""
    variants = {v.name: v.path for v in artifact.read(bundle, check=False).variants}
    dtype = "q8" if "q8" in variants else "fp32"
    bare = BARE.replace("MODEL", variants[dtype]).replace("RUNS", str(RUNS))
    found: dict[str, list[float]] = {}
    with Server(bundle) as server, sync_playwright() as playwright:
        for _ in range(VISITS):
            for name, path in (("bare", "bare.html"), ("page", f"?device=wasm&dtype={dtype}")):
                with tempfile.TemporaryDirectory() as profile:
                    for visit in ("cold", "warm"):
                        first, steady, wire = _visit(playwright, profile, server.url, path, bare, dtype)
                        found.setdefault(f"{name} {visit} first", []).append(first)
                        found.setdefault(f"{name} {visit} wire", []).append(wire)
                        if visit == "warm":
                            found.setdefault(f"{name} steady", []).append(steady)
    middle = {name: statistics.median(values) for name, values in found.items()}
    for name, value in middle.items():
        spread = ", ".join(f"{v:.0f}" for v in found[name])
        print(f"{name:18} {value / 1e6:9.2f} MB" if "wire" in name else f"{name:18} {value:9.1f} ms   ({spread})")
    print(f"cold: page / bare   {middle['page cold first'] / middle['bare cold first']:.2f}   (limit 1.6)")
    print(f"page: warm / cold   {middle['page warm first'] / middle['page cold first']:.2f}   (limit 0.7)")
    print(f"steady: page / bare {middle['page steady'] / middle['bare steady']:.2f}   (limit 1.1)")


def _visit(
    playwright: Playwright, profile: str, url: str, path: str, bare: str, dtype: str
) -> tuple[float, float, float]:
    """Milliseconds to the first result, of a steady run, and bytes over the wire."""
    context = playwright.chromium.launch_persistent_context(
        profile, executable_path=browser.find(), args=list(browser.QUIET), service_workers="allow"
    )
    try:
        page = context.pages[0]
        context.add_init_script(WATCH)
        if path == "bare.html":
            page.route("**/bare.html", lambda route: _fulfil(route, bare))
        received: list[Request] = []
        # Workers' requests are among them; a session of the page alone would not see those.
        page.on("requestfinished", lambda request: received.append(request))
        page.goto(url + path)
        first = _first(page)
        wire = sum(float(request.sizes()["responseBodySize"]) for request in received)
        page.wait_for_timeout(1500)  # the code cache and the service worker finish
        steady = _steady(page, path, dtype)
        return first, steady, wire
    finally:
        context.close()


def _fulfil(route: Route, body: str) -> None:
    headers = {name: value for name, value in HEADERS.items() if name != "Content-Security-Policy"}
    route.fulfill(content_type="text/html", headers=headers, body=body)


def _first(page: Page) -> float:
    for _ in range(1200):
        found: Any = page.evaluate("() => globalThis.first")
        if found:
            return float(found)
        page.wait_for_timeout(50)
    raise SystemExit(f"no result within a minute: {page.inner_text('body')[:300]}")


def _steady(page: Page, path: str, dtype: str) -> float:
    if path != "bare.html":
        return float(page.evaluate(STEADY.replace("DTYPE", f'"{dtype}"'), RUNS))
    for _ in range(1200):
        found: Any = page.evaluate("() => globalThis.steady")
        if found:
            return float(found)
        page.wait_for_timeout(50)
    raise SystemExit("the bare page does not end")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
