"""The library in Chromium: what it loads, what it refuses, what it leaves behind."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from tests.web.driving import RUN, load, prefix_worker, until

if TYPE_CHECKING:
    from playwright.sync_api import Page

SPY = """
const Memory = WebAssembly.Memory;
self.memories = [];
WebAssembly.Memory = class extends Memory { constructor(how) { super(how); self.memories.push(this); } };
"""


@pytest.mark.parametrize("device", ["wasm", "webgpu"])
def test_answers(library: Page, device: str) -> None:
    info = load(library, device=device, dtype="fp32")
    assert (info["device"], info["dtype"], info["fallbacks"]) == (device, "fp32", [])
    assert info["selfTest"]["pass"]
    answer = library.evaluate(RUN, ["red frob circle", 1])
    assert (answer["rows"], answer["columns"]) == (14, 14)
    assert (answer["known"], answer["unknown"]) == (["red", "circle"], ["frob"])
    relevance = np.array(answer["relevance"])
    assert relevance.min() >= 0
    assert relevance.max() <= 1
    assert answer["budgets"] == list(np.floor(64.5 + 336 * relevance.astype(np.float32)).astype(int))
    assert answer["indices"][0] == int(relevance.argmax())


def test_threads_where_memory_can_be_shared_and_none_where_not(library: Page, url: str) -> None:
    four = "() => Object.defineProperty(navigator, 'hardwareConcurrency', { value: 4 })"
    library.evaluate(four)
    info = load(library, device="wasm", dtype="fp32")
    assert (info["threads"], info["selfTest"]["pass"], info["fallbacks"]) == (3, True, [])
    shared = library.evaluate(RUN, ["red circle", 2])
    library.route("**/plain.html", lambda route: route.fulfill(content_type="text/html", body="<!doctype html>"))
    library.goto(f"{url}plain.html")
    library.evaluate(four)
    info = load(library, device="wasm", dtype="fp32")
    assert (info["threads"], info["selfTest"]["pass"], info["fallbacks"]) == (1, True, [])
    assert library.evaluate(RUN, ["red circle", 1])["indices"] == shared["indices"]


def test_asyncify_brings_webgpu_to_browsers_without_jspi(library: Page) -> None:
    library.evaluate("() => { delete WebAssembly.Suspending; }")
    info = load(library, device="webgpu", dtype="fp32")
    assert (info["device"], info["build"], info["fallbacks"]) == ("webgpu", "asyncify", [])
    assert info["selfTest"]["pass"]
    assert len(library.workers) == 1


def test_auto_takes_int8_on_wasm(library: Page) -> None:
    info = load(library)
    assert (info["device"], info["dtype"]) == ("wasm", "q8")  # SwiftShader is an adapter, and no reason to use it


@pytest.mark.parametrize(
    ("options", "code", "sentence"),
    [
        ({"device": "gpu"}, "USAGE", 'the device "gpu" is not to be had'),
        ({"dtype": "int8"}, "USAGE", 'the dtype "int8" is not to be had'),
        ({"devcie": "wasm"}, "USAGE", 'there is no option "devcie"'),
        ({"timeout": "60s"}, "USAGE", "timeout is milliseconds, not 60s"),
        ({"progress_callback": 5}, "USAGE", "progress_callback is a function"),
        ({"device": "wasm", "timeout": 1}, "TIME_OUT", "took longer than 0.001 s"),
        (
            {"device": "wasm", "runtime": "./nowhere/"},
            "ASSET_MISSING",
            "nowhere/ort.wasm.min.mjs?1.30.0 cannot be loaded",
        ),
    ],
)
def test_options_that_cannot_be(library: Page, options: dict[str, object], code: str, sentence: str) -> None:
    error = load(library, **options)
    assert error["code"] == code
    assert sentence in error["message"]


def test_wrong_inputs_are_named(library: Page) -> None:
    load(library, device="wasm")
    code = """async (which) => { const image = new ImageData(32, 32); const inputs = {
        size: { image, query: "red", size: { height: 100, width: 224 } },
        vector: { image, query: new Float32Array(5) },
        words: { image, query: "xyzzy" },
        none: { image },
        number: { image, query: 5 },
        text: { image, query: "red", size: { height: "224", width: 224 } },
        tensor: { image: { data: new Float32Array(5), height: 96, width: 96 }, query: "red" },
        picture: { image: "a.png", query: "red" } };
      return globalThis.runner.run(inputs[which]).then(() => "", (e) => `${e.code}: ${e.message}`); }"""
    said = {
        which: library.evaluate(code, which)
        for which in ("size", "vector", "words", "none", "number", "text", "tensor", "picture")
    }
    assert said["size"].startswith(
        "SHAPE: a height of 100 is not possible: the model takes multiples of 16 from 96 to 512"
    )
    assert said["vector"].startswith("SHAPE: the query has 5 values, and the model takes 768")
    assert said["words"].startswith('QUERY: the model does not know "xyzzy"')
    assert said["none"].startswith("USAGE: the model needs a query")
    assert said["number"] == "USAGE: a query is words or a Float32Array, not 5"
    assert said["text"].startswith("SHAPE: a height of 224 is not possible")
    assert said["tensor"].startswith("SHAPE: the image tensor has 5 values")
    assert said["picture"].startswith("USAGE: an image is needed")


def test_a_hundred_runs_leak_nothing_and_dispose_gives_all_back(library: Page) -> None:
    prefix_worker(library, SPY)
    load(library, device="wasm", dtype="fp32")
    heap = """async () => { await new Promise((go) => setTimeout(go, 100)); globalThis.gc?.();
      return performance.memory.usedJSHeapSize; }"""
    library.evaluate(RUN, ["red circle", 20])
    before, heap_before = _held(library), library.evaluate(heap)
    library.evaluate(RUN, ["red circle", 100])
    assert _held(library) == before
    grown = library.evaluate(heap) - heap_before
    assert grown < 4e6, f"the page's heap grew by {grown / 1e6:.1f} MB"
    library.evaluate("() => globalThis.runner.dispose()")
    until(library, lambda: not library.workers, "the end of the worker")
    disposed = "() => globalThis.runner.run({ image: new ImageData(9, 9), query: 'red' }).catch((e) => e.message)"
    assert "was disposed" in library.evaluate(disposed)


def _held(page: Page) -> int:
    """Bytes of all WebAssembly memories of the worker."""
    sizes: list[int] = page.workers[0].evaluate("() => self.memories.map((m) => m.buffer.byteLength)")
    return sum(sizes)


def test_what_cannot_be_handed_over_is_a_sentence_and_harms_nothing(library: Page) -> None:
    load(library, device="wasm", dtype="fp32", timeout=2000)
    code = """async () => { const image = await createImageBitmap(new ImageData(8, 8)); image.close();
      return globalThis.runner.run({ image, query: "red" }).then(() => "", (e) => `${e.code}: ${e.message}`); }"""
    assert library.evaluate(code).startswith("USAGE: this cannot be handed to the worker")
    library.wait_for_timeout(2500)
    assert library.evaluate(RUN, ["red", 1])["fallbacks"] == []


def test_waiting_for_others_is_no_time_out(library: Page) -> None:
    load(library, device="wasm", dtype="fp32", timeout=2000)
    code = """async () => { const image = new ImageData(8, 8); const before = performance.now(); const said = [];
      for (let i = 0; i < 800; i++) said.push(globalThis.runner.run({ image, query: "red" }).then(() => "", String));
      return [[...new Set(await Promise.all(said))], performance.now() - before]; }"""
    said, took = library.evaluate(code)
    assert said == [""]
    assert took > 2000, "too quick to tell anything: ask more often"


def test_threads_that_hang_twice_are_left_alone(library: Page) -> None:
    library.evaluate("() => Object.defineProperty(navigator, 'hardwareConcurrency', { value: 4 })")
    load(library, device="wasm", dtype="fp32")  # so that the next load puts its self-test off
    hang = """let many = false;
      addEventListener("message", (event) => {
        if (event.data.op === "start") many = event.data.threads > 1;
        if (event.data.op === "run" && many) event.stopImmediatePropagation();
      });"""
    prefix_worker(library, hang)
    assert load(library, device="wasm", dtype="fp32", timeout=5000)["threads"] == 3
    code = """async () => { const { runner } = globalThis; const said = [];
      const run = () => runner.run({ image: new ImageData(8, 8), query: "red" });
      for (let i = 0; i < 3; i++) said.push(await run().then(() => "answer", (error) => error.code));
      const late = new Promise((go) => setTimeout(go, 5000, { pass: "never settled" }));
      return [said, runner.info.threads, (await Promise.race([runner.checked, late])).pass]; }"""
    assert library.evaluate(code) == [["TIME_OUT", "TIME_OUT", "answer"], 1, True]
