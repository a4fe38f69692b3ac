"""The library in Chromium: what it loads, what it refuses, what it leaves behind."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from tests.web.driving import RUN, load, no_workers, prefix_worker

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
    answer = library.evaluate(RUN, ["red circle", 1])
    assert (answer["rows"], answer["columns"]) == (12, 16)
    assert answer["known"] == ["red", "circle"]
    relevance = np.array(answer["relevance"])
    assert relevance.min() >= 0
    assert relevance.max() <= 1
    assert answer["budgets"] == list(np.floor(64.5 + 336 * relevance.astype(np.float32)).astype(int))
    assert answer["indices"][0] == int(relevance.argmax())


@pytest.mark.nightly
def test_a_picture_that_is_not_square_keeps_its_shape(library: Page) -> None:
    """Whatever kind of picture it is given as, and as the page shows it."""
    load(library, device="wasm", dtype="fp32")
    picture = """async (kind) => {
      const canvas = new OffscreenCanvas(400, 200), pen = canvas.getContext("2d");
      pen.fillStyle = "rgb(210, 30, 30)"; pen.fillRect(40, 40, 100, 100);
      const data = pen.getImageData(0, 0, 400, 200);
      const image = kind === "file" ? await canvas.convertToBlob() : kind === "data" ? data : canvas;
      const own = await runner.run({ image, query: "red circle" });
      const fitted = await runner.run({ image, query: "red circle", size: runner.fittingSize(canvas) });
      return [own.rows, own.columns, own.relevance.every((value, at) => value === fitted.relevance[at])];
    }"""
    for kind in ("file", "data", "canvas"):
        assert library.evaluate(picture, kind) == [10, 20, True]


def test_a_picture_without_an_answer_says_so(library: Page) -> None:
    load(library, device="wasm", dtype="fp32")
    assert library.evaluate("() => globalThis.runner.threshold") == 0.5
    for query, present in (("circle", True), ("cross", False)):
        answer = library.evaluate(RUN, [query, 1])
        assert (max(answer["relevance"]) >= 0.5, answer["present"]) == (present, present)
    refused = library.evaluate("() => runner.run({ image: new ImageData(224, 224), query: 'not cross' }).catch(String)")
    assert 'the model does not know "not"' in refused


@pytest.mark.nightly
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


@pytest.mark.nightly
def test_asyncify_brings_webgpu_to_browsers_without_jspi(library: Page) -> None:
    library.evaluate("() => { delete WebAssembly.Suspending; }")
    info = load(library, device="webgpu", dtype="fp32")
    assert (info["device"], info["build"], info["fallbacks"]) == ("webgpu", "asyncify", [])
    assert info["selfTest"]["pass"]
    assert len(library.workers) == 1


@pytest.mark.parametrize(
    ("options", "code", "sentence"),
    [
        ({"device": "gpu"}, "USAGE", 'unknown device "gpu": possible values are "auto", "webgpu", "webnn", "wasm"'),
        ({"dtype": "int8"}, "USAGE", 'unknown dtype "int8": possible values are "auto", "fp32", "fp16", "q8"'),
        ({"devcie": "wasm"}, "USAGE", 'unknown option "devcie"'),
        ({"timeout": "60s"}, "USAGE", "timeout must be a positive number of milliseconds, not 60s"),
        ({"selfTest": "later"}, "USAGE", 'selfTest must be true, false or "after", not "later"'),
        ({"progress_callback": 5}, "USAGE", "progress_callback must be a function"),
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
        picture: { image: 5, query: "red" }, address: { image: "http://", query: "red" },
        gone: { image: "a.png", query: "red" },
        bytes: { image: { data: new Uint8Array(5), height: 96, width: 96 }, query: "red" } };
      return globalThis.runner.run(inputs[which]).then(() => "", (e) => `${e.code}: ${e.message}`); }"""
    messages = {
        which: library.evaluate(code, which)
        for which in (
            *("size", "vector", "words", "none", "number", "text", "tensor", "picture"),
            *("address", "gone", "bytes"),
        )
    }
    assert messages["size"].startswith(
        "SHAPE: the height 100 is not supported: the model accepts multiples of 16 from 96 to 512"
    )
    assert messages["vector"].startswith("SHAPE: the query has 5 values, but the model expects 768")
    assert messages["words"].startswith('QUERY: the model does not know "xyzzy"')
    assert messages["none"].startswith("USAGE: the model needs a query")
    assert messages["number"] == "USAGE: the query must be a string, a list of strings or a Float32Array, not 5"
    assert messages["text"].startswith("SHAPE: the height 224 is not supported")
    assert messages["tensor"].startswith("SHAPE: the image tensor has 5 values")
    assert messages["picture"].startswith("USAGE: the image must be a Blob, ")
    assert messages["address"] == 'USAGE: "http://" is not a valid URL of a picture'
    assert "a.png cannot be fetched: the server answered 404" in messages["gone"]
    assert messages["bytes"].startswith("SHAPE: the picture has 5 bytes, but 96 x 96 pixels need three")


BATCH = """async (dtype) => { const { load } = await import(new URL("edgekit.js", location.href).href);
  const RealWorker = Worker; const asked = [];
  globalThis.Worker = class extends RealWorker {
    postMessage(message, ...more) {
      if (message.op === "run") asked.push(message.questions.length);
      super.postMessage(message, ...more);
    }
  };
  globalThis.runner = await load("./", { device: "wasm", dtype });
  globalThis.Worker = RealWorker;
  const random = (seed) => Uint8Array.from({ length: 3 * 96 * 96 }, (_, i) => (i * i * seed + i * 31) % 251);
  const pixels = (seed) => ({ data: random(seed), height: 96, width: 96 });
  const small = { height: 96, width: 96 };
  const inputs = [
    ...[1, 2, 3, 4, 5, 6, 7, 8, 9].map((seed) =>
      ({ image: pixels(seed), query: seed % 2 ? "red" : "blue ring", size: small })),
    { image: "samples/001.png", query: "red" }, { image: new ImageData(96, 96), query: "blue" },
    { image: { data: new Float32Array(3 * 96 * 112).fill(0.3), height: 96, width: 112 }, query: "red" },
  ];
  const told = ({ known, relevance, budgets, indices, rows, columns, present, tokens, outputs }) =>
    [known, [...relevance], [...budgets], [...indices], rows, columns, present, [...tokens.data], tokens.shape,
     Object.entries(outputs).map(([name, { shape, data, role }]) => [name, shape, data.length, role])];
  const many = (await runner.run(inputs)).map(told);
  const batches = asked.splice(0);
  const single = [];
  for (const input of inputs) single.push(told(await runner.run(input)));
  return [many, single, batches, (await runner.run([])).length]; }"""
DISPOSE = """async () => { let kept;
  { await using held = { [Symbol.asyncDispose]: () => runner[Symbol.asyncDispose]() }; kept = held; }
  return runner.run({ image: new ImageData(9, 9), query: "red" }).catch((e) => e.message); }"""


def test_a_list_is_run_in_batches_with_the_answers_of_single_runs_and_a_block_disposes(library: Page) -> None:
    many, single, batches, none = library.evaluate(BATCH, "fp32")
    assert batches == [8, 1, 2, 1]  # at most 8, and neighbours of one size: the two in the default size
    assert none == 0
    assert len({tuple(answer[1]) for answer in many}) == len(many)
    for together, alone in zip(many, single, strict=True):
        assert together[0] == alone[0]
        assert together[1] == pytest.approx(alone[1], abs=1e-6)
        assert together[7] == pytest.approx(alone[7], abs=1e-6)
        assert [*together[2:7], *together[8:]] == [*alone[2:7], *alone[8:]]
    assert "was disposed" in library.evaluate(DISPOSE)
    no_workers(library)


@pytest.mark.nightly
def test_a_hundred_runs_leak_nothing_and_dispose_gives_all_back(library: Page) -> None:
    prefix_worker(library, SPY)
    load(library, device="wasm", dtype="fp32")
    library.evaluate(RUN, ["red circle", 20])
    before, heap_before = _held(library), _heap(library)
    library.evaluate(RUN, ["red circle", 100])
    assert _held(library) == before
    grown = _heap(library) - heap_before
    assert grown < 4e6, f"the page's heap grew by {grown / 1e6:.1f} MB"
    library.evaluate("() => globalThis.runner.dispose()")
    no_workers(library)
    disposed = "() => globalThis.runner.run({ image: new ImageData(9, 9), query: 'red' }).catch((e) => e.message)"
    assert "was disposed" in library.evaluate(disposed)


def _heap(page: Page) -> int:
    """Bytes of the page's own JavaScript heap, after garbage collection."""
    session = page.context.new_cdp_session(page)
    session.send("HeapProfiler.collectGarbage")
    used = int(session.send("Runtime.getHeapUsage")["usedSize"])
    session.detach()
    return used


def _held(page: Page) -> int:
    """Bytes of all WebAssembly memories of the worker."""
    sizes: list[int] = page.workers[0].evaluate("() => self.memories.map((m) => m.buffer.byteLength)")
    return sum(sizes)


def test_an_input_that_cannot_be_sent_is_an_error_without_effect_on_later_runs(library: Page) -> None:
    library.clock.install()
    load(library, device="wasm", dtype="fp32")
    code = """async () => { const image = await createImageBitmap(new ImageData(8, 8)); image.close();
      return globalThis.runner.run({ image, query: "red" }).then(() => "", (e) => `${e.code}: ${e.message}`); }"""
    assert library.evaluate(code).startswith("USAGE: the input cannot be sent to the worker")
    library.clock.fast_forward(70_000)  # past the time limit that a request of its own would have
    assert library.evaluate(RUN, ["red", 1])["fallbacks"] == []


@pytest.mark.nightly
def test_waiting_for_others_is_no_time_out(library: Page) -> None:
    # Each run takes at least 0.3 s, and 30 of them wait for one another: at least 9 s, with a limit of 6 s for each.
    slow = """addEventListener("message", (event) => {
        const end = performance.now() + 300;
        while (event.data.op === "run" && performance.now() < end);
      });"""
    prefix_worker(library, slow)
    load(library, device="wasm", dtype="fp32", timeout=6000)
    code = """async () => { const image = new ImageData(8, 8);
      const run = () => globalThis.runner.run({ image, query: "red" }).then(() => "", String);
      const start = performance.now();
      const errors = await Promise.all(Array.from({ length: 30 }, run));
      return [[...new Set(errors)], performance.now() - start]; }"""
    errors, took = library.evaluate(code)
    assert errors == [""]
    assert took > 6000


@pytest.mark.nightly
def test_threads_that_hang_twice_are_avoided(library: Page) -> None:
    library.evaluate("() => Object.defineProperty(navigator, 'hardwareConcurrency', { value: 4 })")
    load(library, device="wasm", dtype="fp32")  # so that the next load defers its self-test
    hang = """let many = false;
      addEventListener("message", (event) => {
        if (event.data.op === "start") many = event.data.threads > 1;
        if (event.data.op === "run" && many) event.stopImmediatePropagation();
      });"""
    prefix_worker(library, hang)
    assert load(library, device="wasm", dtype="fp32", timeout=5000)["threads"] == 3
    code = """async () => { const { runner } = globalThis; const outcomes = [];
      const run = () => runner.run({ image: new ImageData(8, 8), query: "red" });
      for (let i = 0; i < 3; i++) outcomes.push(await run().then(() => "answer", (error) => error.code));
      const late = new Promise((go) => setTimeout(go, 5000, { pass: "never settled" }));
      return [outcomes, runner.info.threads, (await Promise.race([runner.checked, late])).pass]; }"""
    assert library.evaluate(code) == [["TIME_OUT", "TIME_OUT", "answer"], 1, True]
