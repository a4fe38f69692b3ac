"""The library in Chromium: what it loads, what it refuses, what its self-test catches, what it leaves behind."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

if TYPE_CHECKING:
    from playwright.sync_api import Page, Route

LOAD = """async (options) => {
  const library = await import(new URL("edgekit.js", location.href).href);
  try {
    globalThis.runner = await library.load("./", options);
    return globalThis.runner.info;
  } catch (error) {
    return { code: error.code, name: error.name, message: error.message };
  }
}"""
RUN = """async ([query, count]) => {
  const canvas = new OffscreenCanvas(320, 240);
  const context = canvas.getContext("2d");
  context.fillStyle = "#c82828";
  context.fillRect(40, 40, 120, 120);
  let result;
  for (let i = 0; i < count; i++) result = await globalThis.runner.run({ image: canvas, query });
  const { relevance, budgets, indices, rows, columns, known, unknown } = result;
  const { device, dtype, fallbacks } = globalThis.runner.info;
  return { relevance: [...relevance], budgets: [...budgets], indices: [...indices], rows, columns, known, unknown,
           device, dtype, fallbacks };
}"""
SPY = """
const Memory = WebAssembly.Memory;
self.memories = [];
WebAssembly.Memory = class extends Memory { constructor(how) { super(how); self.memories.push(this); } };
"""
WRONG_KERNEL = """
const make = GPUDevice.prototype.createShaderModule;
GPUDevice.prototype.createShaderModule = function (how) {
  return make.call(this, { ...how, code: how.code.replaceAll(/\\bexp\\(/g, "0.8 * exp(") });
};
"""


def load(page: Page, **options: object) -> dict[str, Any]:
    found: dict[str, Any] = page.evaluate(LOAD, options)
    return found


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


def test_fp16_without_shader_f16_falls_back_and_says_so(library: Page) -> None:
    info = load(library, device="webgpu", dtype="fp16")
    assert (info["device"], info["dtype"]) == ("webgpu", "fp32")
    assert "shader-f16" in info["fallbacks"][0]["reason"]


@pytest.mark.parametrize(
    ("options", "code", "sentence"),
    [
        ({"device": "gpu"}, "USAGE", 'the device "gpu" is not to be had'),
        ({"dtype": "int8"}, "USAGE", 'the dtype "int8" is not to be had'),
        ({"devcie": "wasm"}, "USAGE", 'there is no option "devcie"'),
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


def test_a_damaged_model_is_refused_and_fp32_stands_in(library: Page) -> None:
    _replace(library, "onnx/model_quantized.onnx", lambda data: data[:-1] + bytes([data[-1] ^ 1]))
    info = load(library, device="wasm")
    assert info["dtype"] == "fp32"
    assert info["fallbacks"][0]["code"] == "HASH_MISMATCH"


def test_a_tampered_model_with_a_fitting_manifest_is_caught_by_the_self_test(library: Page, bundle: Path) -> None:
    path = "onnx/model_quantized.onnx"
    _serve(library, bundle, {path: _tampered((bundle / path).read_bytes())})
    info = load(library, device="wasm")
    assert info["dtype"] == "fp32"
    assert info["fallbacks"][0]["code"] == "SELF_TEST"
    assert "a score is off by" in info["fallbacks"][0]["reason"]


def test_nothing_right_is_an_error_not_an_answer(library: Page, bundle: Path) -> None:
    paths = ("onnx/model_quantized.onnx", "onnx/model.onnx")
    _serve(library, bundle, {path: _tampered((bundle / path).read_bytes()) for path in paths})
    error = load(library, device="wasm")
    assert error["code"] == "SELF_TEST"
    assert error["name"] == "SelfTestError"


def test_a_wrong_scale_is_caught(library: Page, bundle: Path) -> None:
    manifest = json.loads((bundle / "manifest.json").read_text())
    manifest["inputs"][0]["high"] = 255
    _serve(library, bundle, {"manifest.json": json.dumps(manifest).encode()})
    assert load(library, device="wasm")["code"] == "SELF_TEST"


def test_a_wrong_channel_order_is_caught(library: Page, bundle: Path) -> None:
    described = json.loads((bundle / "golden.json").read_text())
    data = bytearray((bundle / "golden.bin").read_bytes())
    for case in described["cases"]:
        start, size = case["image"]["offset"], int(np.prod(case["image"]["shape"]))
        pixels = np.frombuffer(bytes(data[start : start + size]), np.uint8).reshape(-1, 3)
        data[start : start + size] = pixels[:, ::-1].tobytes()
    _serve(library, bundle, {"golden.bin": bytes(data)})
    assert load(library, device="wasm")["code"] == "SELF_TEST"


def test_a_wrong_kernel_is_caught_and_wasm_stands_in(library: Page) -> None:
    _prefix_worker(library, WRONG_KERNEL)
    info = load(library, device="webgpu", dtype="fp32")
    assert (info["device"], info["dtype"]) == ("wasm", "fp32")
    assert [(f["device"], f["code"]) for f in info["fallbacks"]] == [("webgpu", "SELF_TEST")]


def test_a_lost_gpu_is_replaced_at_the_next_run(library: Page) -> None:
    _prefix_worker(
        library,
        "const own = GPUAdapter.prototype.requestDevice; GPUAdapter.prototype.requestDevice = "
        "async function (how) { return (self.device = await own.call(this, how)); };",
    )
    load(library, device="webgpu", dtype="fp32")
    library.workers[0].evaluate("() => self.device.destroy()")
    library.wait_for_timeout(300)
    answer = library.evaluate(RUN, ["red", 1])
    assert [f["code"] for f in answer["fallbacks"]] == ["DEVICE_LOST"]


def test_a_missing_gpu_file_falls_back_to_wasm(library: Page) -> None:
    library.route("**/ort.jspi.min.mjs*", lambda route: route.fulfill(status=404, body="gone"))
    info = load(library, device="webgpu", dtype="fp32")
    assert info["device"] == "wasm"
    assert "ort.jspi.min.mjs?1.30.0 cannot be loaded" in info["fallbacks"][0]["reason"]


def test_a_page_instead_of_the_manifest_is_named(library: Page) -> None:
    library.route("**/manifest.json", lambda route: route.fulfill(content_type="text/html", body="<p>404</p>"))
    error = load(library)
    assert error["code"] == "ASSET_MISSING"
    assert "HTML page instead" in error["message"]


def test_a_warm_load_asks_no_server_for_the_model(library: Page) -> None:
    asked: list[str] = []
    library.on("request", lambda request: asked.append(request.url))
    load(library, device="wasm")
    library.wait_for_timeout(300)
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
    library.wait_for_timeout(200)
    assert library.workers == []


def test_wrong_inputs_are_named(library: Page) -> None:
    load(library, device="wasm")
    code = """async (which) => { const image = new ImageData(32, 32); const inputs = {
        size: { image, query: "red", size: { height: 100, width: 224 } },
        vector: { image, query: new Float32Array(5) },
        words: { image, query: "xyzzy" },
        none: { image },
        tensor: { image: { data: new Float32Array(5), height: 96, width: 96 }, query: "red" },
        picture: { image: "a.png", query: "red" } };
      return globalThis.runner.run(inputs[which]).then(() => "", (e) => `${e.code}: ${e.message}`); }"""
    said = {which: library.evaluate(code, which) for which in ("size", "vector", "words", "none", "tensor", "picture")}
    assert said["size"].startswith(
        "SHAPE: a height of 100 is not possible: the model takes multiples of 16 from 96 to 512"
    )
    assert said["vector"].startswith("SHAPE: the query has 5 values, and the model takes 768")
    assert said["words"].startswith('QUERY: the model does not know "xyzzy"')
    assert said["none"].startswith("USAGE: the model needs a query")
    assert said["tensor"].startswith("SHAPE: the image tensor has 5 values")
    assert said["picture"].startswith("USAGE: an image is needed")


def test_a_hundred_runs_leak_nothing_and_dispose_gives_all_back(library: Page) -> None:
    _prefix_worker(library, SPY)
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
    library.wait_for_timeout(300)
    assert library.workers == []
    disposed = "() => globalThis.runner.run({ image: new ImageData(9, 9), query: 'red' }).catch((e) => e.message)"
    assert "was disposed" in library.evaluate(disposed)


def _held(page: Page) -> int:
    """Bytes of all WebAssembly memories of the worker."""
    sizes: list[int] = page.workers[0].evaluate("() => self.memories.map((m) => m.buffer.byteLength)")
    return sum(sizes)


def _tampered(model: bytes) -> bytes:
    graph = onnx.load_from_string(model)
    (mix,) = [t for t in graph.graph.initializer if t.name == "mix"]
    weights = numpy_helper.to_array(mix).copy()
    weights[:, 0] *= 1.2
    mix.CopyFrom(numpy_helper.from_array(weights, "mix"))
    changed: bytes = graph.SerializeToString()
    return changed


def _serve(page: Page, bundle: Path, files: dict[str, bytes]) -> None:
    """Serve other files, and a manifest whose hashes fit them."""
    manifest = json.loads(files.get("manifest.json") or (bundle / "manifest.json").read_bytes())
    for entry in manifest["files"]:
        if entry["path"] in files:
            data = files[entry["path"]]
            entry.update(size=len(data), sha256=hashlib.sha256(data).hexdigest())
    served = {**files, "manifest.json": json.dumps(manifest).encode()}
    for path, data in served.items():
        _replace(page, path, lambda _, data=data: data)  # type: ignore[misc]


def _replace(page: Page, path: str, change: Callable[[bytes], bytes]) -> None:
    def answer(route: Route) -> None:
        original = route.fetch()
        headers = {k: v for k, v in original.headers.items() if k not in ("content-encoding", "content-length")}
        route.fulfill(status=200, headers=headers, body=change(original.body()))

    page.route(f"**/{path}", answer)


def _prefix_worker(page: Page, script: str) -> None:
    _replace(page, "assets/worker-*.js", lambda data: script.encode() + data)
