"""What the library's self-test detects, and which candidate it falls back to."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from edgekit_targets.web import browser as chromium
from tests.web.driving import RUN, load, no_workers, prefix_worker, replace, serve

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

NO_SOFTWARE = """() => {
  const told = { vendor: "acme", architecture: "", description: "", isFallbackAdapter: false };
  for (const [name, value] of Object.entries(told)) {
    Object.defineProperty(GPUAdapterInfo.prototype, name, { get: () => value });
  }
}"""
LATE_GPU = """
const map = GPUBuffer.prototype.mapAsync;
GPUBuffer.prototype.mapAsync = function (...how) {
  return map.apply(this, how).then(() => new Promise((resolve) => setTimeout(resolve, 200)));
};
"""
WRONG_KERNEL = """
const make = GPUDevice.prototype.createShaderModule;
GPUDevice.prototype.createShaderModule = function (how) {
  return make.call(this, { ...how, code: how.code.replaceAll(/\\bexp\\(/g, "0.8 * exp(") });
};
"""


def test_webgpu_takes_the_weights_in_fp16_without_16_bit_shaders(library: Page) -> None:
    info = load(library, device="webgpu")
    assert (info["device"], info["dtype"], info["fallbacks"]) == ("webgpu", "fp16", [])


@pytest.mark.nightly
def test_the_quicker_device_is_used_and_remembered(library: Page) -> None:
    """A GPU that answers late: WASM is quicker, and the next visit does not try the GPU."""
    prefix_worker(library, LATE_GPU)
    library.evaluate(NO_SOFTWARE)
    info = load(library)
    assert info["device"] == "wasm"
    assert info["selfTest"]["pass"]
    [(device, code, reason)] = [(f["device"], f["code"], f["reason"]) for f in info["fallbacks"]]
    assert (device, code) == ("webgpu", "SLOWER")
    assert re.fullmatch(r"it takes \d+ ms, and WASM \d+ ms", reason)
    again = load(library)
    assert (again["device"], again["fallbacks"]) == ("wasm", [])
    assert load(library, device="webgpu")["device"] == "webgpu"


@pytest.mark.nightly
def test_webnn_is_used_after_its_self_test_or_says_why_not(browser: Browser, library: Page, url: str) -> None:
    info = load(library, device="webnn")
    assert info["device"] == "wasm"
    assert [(f["device"], f["reason"]) for f in info["fallbacks"]] == [("webnn", "this browser has no WebNN")]
    flags = [*chromium.QUIET, "--enable-features=WebMachineLearningNeuralNetwork"]
    own = browser.browser_type.launch(executable_path=chromium.find_chromium() or None, args=flags)
    page = own.new_page()
    page.goto(url + "manifest.json")
    info = load(page, device="webnn")
    own.close()
    assert info["selfTest"]["pass"]
    if info["device"] != "webnn":  # Debian's build has the interface, and gives no context
        assert info["device"] == "wasm"
        assert info["fallbacks"][0]["device"] == "webnn"
        assert "WebNN gives no context (" in info["fallbacks"][0]["reason"]


def test_a_damaged_model_is_refused_and_fp32_is_used(library: Page) -> None:
    replace(library, "onnx/model_quantized.onnx", lambda data: data[:-1] + bytes([data[-1] ^ 1]))
    info = load(library, device="wasm")
    assert info["dtype"] == "fp32"
    assert info["fallbacks"][0]["code"] == "HASH_MISMATCH"


def test_a_tampered_model_with_a_fitting_manifest_is_caught_by_the_self_test(library: Page, bundle: Path) -> None:
    path = "onnx/model_quantized.onnx"
    serve(library, bundle, {path: _tampered((bundle / path).read_bytes())})
    info = load(library, device="wasm")
    assert info["dtype"] == "fp32"
    assert info["fallbacks"][0]["code"] == "SELF_TEST"
    assert "the largest error of the output" in info["fallbacks"][0]["reason"]


def test_nothing_right_is_an_error_not_an_answer(library: Page, bundle: Path) -> None:
    paths = ("onnx/model_quantized.onnx", "onnx/model.onnx")
    serve(library, bundle, {path: _tampered((bundle / path).read_bytes()) for path in paths})
    error = load(library, device="wasm")
    assert error["code"] == "SELF_TEST"
    assert error["name"] == "SelfTestError"


@pytest.mark.nightly
def test_a_wrong_scale_is_caught(library: Page, bundle: Path) -> None:
    manifest = json.loads((bundle / "manifest.json").read_text())
    manifest["inputs"][0]["high"] = 255
    serve(library, bundle, {"manifest.json": json.dumps(manifest).encode()})
    assert load(library, device="wasm")["code"] == "SELF_TEST"


def test_a_wrong_channel_order_is_caught(library: Page, bundle: Path) -> None:
    described = json.loads((bundle / "golden.json").read_text())
    data = bytearray((bundle / "golden.bin").read_bytes())
    for case in described["cases"]:
        start, size = case["image"]["offset"], int(np.prod(case["image"]["shape"]))
        pixels = np.frombuffer(bytes(data[start : start + size]), np.uint8).reshape(-1, 3)
        data[start : start + size] = pixels[:, ::-1].tobytes()
    serve(library, bundle, {"golden.bin": bytes(data)})
    assert load(library, device="wasm")["code"] == "SELF_TEST"


@pytest.mark.nightly
def test_a_wrong_kernel_is_caught_and_wasm_is_used(library: Page) -> None:
    prefix_worker(library, WRONG_KERNEL)
    info = load(library, device="webgpu", dtype="fp32")
    assert (info["device"], info["dtype"]) == ("wasm", "fp32")
    # Where the GPU has 16-bit floats, the file in fp16 was tried too.
    assert {(f["device"], f["code"]) for f in info["fallbacks"]} == {("webgpu", "SELF_TEST")}


@pytest.mark.nightly
def test_a_lost_gpu_is_replaced_at_the_next_run(library: Page) -> None:
    prefix_worker(
        library,
        "const own = GPUAdapter.prototype.requestDevice; GPUAdapter.prototype.requestDevice = "
        "async function (how) { return (self.device = await own.call(this, how)); };",
    )
    load(library, device="webgpu", dtype="fp32")
    library.workers[0].evaluate("() => self.device.destroy()")
    no_workers(library)  # the library terminates the worker of a lost device
    answer = library.evaluate(RUN, ["red", 1])
    assert [f["code"] for f in answer["fallbacks"]] == ["DEVICE_LOST"]


@pytest.mark.nightly
def test_a_missing_gpu_file_falls_back_to_wasm(library: Page) -> None:
    library.route("**/ort.jspi.min.mjs*", lambda route: route.fulfill(status=404, body="gone"))
    info = load(library, device="webgpu", dtype="fp32")
    assert info["device"] == "wasm"
    assert "ort.jspi.min.mjs?1.30.0 cannot be loaded" in info["fallbacks"][0]["reason"]


def _tampered(model: bytes) -> bytes:
    graph = onnx.load_from_string(model)
    (mix,) = [t for t in graph.graph.initializer if t.name == "mix"]
    weights = numpy_helper.to_array(mix).copy()
    weights[:, 0] *= 1.2
    mix.CopyFrom(numpy_helper.from_array(weights, "mix"))
    changed: bytes = graph.SerializeToString()
    return changed


@pytest.mark.nightly
def test_what_passed_before_answers_first_and_is_tested_after(library: Page) -> None:
    assert load(library, device="wasm", dtype="fp32")["timings"]["selfTest"] > 0
    assert load(library, device="wasm", dtype="fp32")["selfTest"]["pass"]
    # The worker handles requests in order: a self-test that had begun while loading would end before this `feed`.
    code = """async () => { const { runner } = globalThis; const before = runner.info.selfTest; let settled = false;
      runner.checked.then(() => { settled = true; });
      const zeros = (...shape) => ({ dtype: "float32", shape, data: new Float32Array(shape.reduce((a, b) => a * b)) });
      await runner.feed({ images: zeros(1, 3, 224, 224), queries: zeros(1, 768) });
      const early = settled; await runner.run({ image: new ImageData(8, 8), query: "red" });
      const report = await runner.checked; return [early, report.pass, before.pass]; }"""
    assert library.evaluate(code) == [False, True, True]


@pytest.mark.nightly
def test_a_deferred_self_test_that_fails_causes_a_fallback(library: Page) -> None:
    load(library, device="wasm", dtype="fp32")
    fails = """const own = self.postMessage.bind(self);
      self.postMessage = (reply, how) => {
        for (const one of reply.response?.cases ?? []) Object.assign(one, { pass: false, reason: "made to fail" });
        own(reply, how);
      };"""
    prefix_worker(library, fails)
    assert load(library, device="wasm", dtype="fp32")["fallbacks"] == []
    library.evaluate(RUN, ["red", 1])
    assert library.evaluate("() => globalThis.runner.checked.catch((error) => error.code)") == "SELF_TEST"
    again = "() => globalThis.runner.run({ image: new ImageData(8, 8), query: 'red' }).catch((error) => error.code)"
    assert library.evaluate(again) == "SELF_TEST"
    assert load(library, device="wasm", dtype="fp32")["code"] == "SELF_TEST"


@pytest.mark.nightly
def test_a_gpu_that_passed_before_is_tested_at_every_load(library: Page) -> None:
    assert load(library, device="webgpu", dtype="fp32")["device"] == "webgpu"
    prefix_worker(library, WRONG_KERNEL)
    assert load(library, device="webgpu", dtype="fp32")["device"] == "wasm"
