"""The self-test in a folder for transformers.js: onnxruntime-web in Chromium tries each dtype and device."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import pytest
import torch
from onnx import helper, numpy_helper

import edgekit

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page, Route

pytestmark = pytest.mark.nightly
ORT = Path(__file__).parents[3] / "web" / "node_modules" / "onnxruntime-web" / "dist"
ORIGIN = "http://localhost/"
TYPES = {".mjs": "text/javascript", ".js": "text/javascript", ".wasm": "application/wasm", ".json": "application/json"}
SCRIPT = """async ([folder, options]) => {
  const ort = await import("/ort/ort.bundle.min.mjs");
  ort.env.wasm.numThreads = 1;
  ort.env.logLevel = "fatal";
  const { selftest } = await import(`/${folder}/edgekit-selftest.js`);
  try {
    return await selftest(`/${folder}`, ort, options);
  } catch (error) {
    return { name: error.name, message: error.message, tried: error.tried };
  }
}"""
SMALL = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}


def text_classifier() -> Any:
    from transformers import BertConfig, BertForSequenceClassification

    return BertForSequenceClassification(BertConfig(**SMALL, vocab_size=40))


def text_encoder() -> Any:
    from transformers import BertConfig, BertModel

    return BertModel(BertConfig(**SMALL, vocab_size=40))


def image_classifier() -> Any:
    from transformers import ViTConfig, ViTForImageClassification

    return ViTForImageClassification(ViTConfig(**SMALL, image_size=32, patch_size=16, num_labels=5))


TASKS: dict[str, tuple[Callable[[], Any], list[str]]] = {
    "text-classification": (text_classifier, ["onnx", "onnx-fp16", "onnx-int8-dynamic"]),
    "feature-extraction": (text_encoder, ["onnx", "onnx-int8-dynamic"]),
    "image-classification": (image_classifier, ["onnx", "onnx-int8-dynamic"]),
}


@pytest.fixture(scope="module", params=TASKS)
def hub(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a task."""
    if not ORT.is_dir():
        pytest.skip("onnxruntime-web is missing: npm ci --ignore-scripts --prefix web")
    folder = tmp_path_factory.mktemp("selftest")
    torch.manual_seed(0)
    make, targets = TASKS[request.param]
    make().eval().save_pretrained(folder / "tiny")
    build = edgekit.export(
        f"transformers:{folder / 'tiny'}",
        task=request.param,
        targets=targets,
        output=folder / "builds",
        progress="none",
    )
    assert [outcome.verdict for outcome in build.values()] == ["verified"] * len(targets)
    return build.path / "hub"


@pytest.fixture
def page(browser: Browser, tmp_path: Path) -> Iterator[Page]:
    """A page with onnxruntime-web and the folders in tmp_path."""

    def answer(route: Route) -> None:
        path = route.request.url.removeprefix(ORIGIN).partition("?")[0]
        file = ORT / path.removeprefix("ort/") if path.startswith("ort/") else tmp_path / path
        if not path:
            route.fulfill(body="<!doctype html>", content_type="text/html")
        elif file.is_file():
            route.fulfill(body=file.read_bytes(), content_type=TYPES.get(file.suffix, "application/octet-stream"))
        else:
            route.fulfill(status=404)

    opened = browser.new_page()
    opened.route("**/*", answer)
    opened.goto(ORIGIN)
    yield opened
    opened.close()


def copy(hub: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(hub, tmp_path / "model"))


def passes(result: dict[str, Any]) -> dict[tuple[str, str], bool]:
    return {(attempt["dtype"], attempt["device"]): attempt["pass"] for attempt in result["tried"]}


def test_each_dtype_passes_and_a_wrong_one_is_never_chosen(hub: Path, page: Page, tmp_path: Path) -> None:
    folder = copy(hub, tmp_path)
    right = page.evaluate(SCRIPT, ["model", {}])
    dtypes = json.loads((folder / "golden.json").read_text())["files"]
    wasm = {(dtype, "wasm"): True for dtype in dtypes}
    assert {"fp32", "q8"} <= dtypes.keys()
    # The GPU is a piece of software here.
    assert passes(right) == wasm | {(dtype, "webgpu"): False for dtype in dtypes}
    times = {attempt["dtype"]: attempt["ms"] for attempt in right["tried"] if attempt["pass"]}
    assert (right["device"], right["ms"]) == ("wasm", min(times.values()))
    assert times[right["dtype"]] == right["ms"]
    spoil(folder / "onnx" / "model_quantized.onnx")
    wrong = page.evaluate(SCRIPT, ["model", {"devices": ["wasm"]}])
    assert passes(wrong) == wasm | {("q8", "wasm"): False}
    assert wrong["dtype"] != "q8"
    [reason] = [attempt["reason"] for attempt in wrong["tried"] if not attempt["pass"]]
    assert "limit" in reason
    alone = page.evaluate(SCRIPT, ["model", {"dtypes": ["q8"], "devices": ["wasm"]}])
    assert (alone["name"], passes(alone)) == ("Error", {("q8", "wasm"): False})
    assert reason in alone["message"]


def spoil(path: Path) -> None:
    """Double the first output of a model, as a wrong scale of a quantized layer would."""
    model = onnx.load(path)
    name = model.graph.output[0].name
    for node in model.graph.node:
        node.output[:] = ["halved" if output == name else output for output in node.output]
    model.graph.initializer.append(numpy_helper.from_array(np.array(2, np.float32), "two"))
    model.graph.node.append(helper.make_node("Mul", ["halved", "two"], [name]))
    onnx.save(model, path)


def test_webgpu_runs_where_the_page_names_it(hub: Path, page: Page, tmp_path: Path) -> None:
    copy(hub, tmp_path)
    result = page.evaluate(SCRIPT, ["model", {"devices": ["webgpu"], "dtypes": ["fp32", "q4"], "runs": 1}])
    reasons = {attempt["dtype"]: attempt["reason"] for attempt in result["tried"]}
    assert reasons == {"fp32": "", "q4": "the folder has no such dtype"}
    assert (result["device"], result["dtype"]) == ("webgpu", "fp32")


def test_a_folder_with_a_cache_has_no_self_test(tmp_path: Path) -> None:
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    sizes = {"num_key_value_heads": 1, "vocab_size": 40, "max_position_embeddings": 128}
    LlamaForCausalLM(LlamaConfig(**SMALL, **sizes)).eval().save_pretrained(tmp_path / "llama")
    build = edgekit.export(
        f"transformers:{tmp_path / 'llama'}",
        task="text-generation-with-past",
        targets=["onnx"],
        output=tmp_path / "builds",
        progress="none",
    )
    names = {path.name for path in (build.path / "hub").iterdir()}
    assert "onnx" in names
    assert not names & {"golden.json", "golden.bin", "edgekit-selftest.js"}


def test_it_is_small_and_a_folder_without_it_is_a_sentence(hub: Path, page: Page, tmp_path: Path) -> None:
    folder = copy(hub, tmp_path)
    record = json.loads((folder / "golden.json").read_text())
    assert all((folder / path).is_file() for path in record["files"].values())
    assert (folder / "golden.bin").stat().st_size < 200_000
    changes: tuple[dict[str, Any], ...] = ({"format": 2}, {"cases": []})
    for change in changes:
        (folder / "golden.json").write_text(json.dumps(record | change))
        result = page.evaluate(SCRIPT, ["model", {}])
        assert (result["name"], "no self-test" in result["message"]) == ("TypeError", True)
    (folder / "golden.bin").unlink()
    result = page.evaluate(SCRIPT, ["model", {}])
    assert (result["name"], "golden.bin" in result["message"]) == ("TypeError", True)
