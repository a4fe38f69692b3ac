"""A model without scores of patches: the library gives its outputs by name, and the page its likeliest classes."""

from __future__ import annotations

import gzip
import io
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import brotli
import numpy as np
import onnx
import pytest
from PIL import Image

from edgekit.artifact.store import read_artifact
from edgekit.model.sources import resolve_model
from edgekit.runtime.ort import OrtRuntime
from edgekit_targets.web.server import Server
from tests.builds import unjudged
from tests.command import exit_code
from tests.manifests import resealed
from tests.web.driving import load

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

    from edgekit.model.spec import Array

CLASSES = ("cat", "dog", "tulip", "harbour", "mountain", "bicycle")
SIDE = 32
FP32 = {"web": {"variants": "fp32"}}
OUTPUTS = """async (bytes) => {
  const image = await createImageBitmap(new Blob([new Uint8Array(bytes)], { type: "image/png" }));
  const { outputs, relevance, present, rows } = await globalThis.runner.run({ image });
  const { role, shape, data } = outputs.logits;
  const { length } = relevance;
  return { names: Object.keys(outputs), role, shape: [...shape], data: [...data], length, present, rows };
}"""


SLOW = bool(os.environ.get("EDGEKIT_SLOW"))
TARGETS = ("onnx", "onnx-int8-static", "web")


@pytest.fixture(scope="module")
def build(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `edgekit export transformers:FOLDER -t onnx -t onnx-int8-static -t web` makes of what save_pretrained wrote.

    In the slow mode that very command; else without INT8, and nothing is judged.
    """
    transformers = pytest.importorskip("transformers", reason="no transformers: pip install -e '.[test]'")
    import torch

    folder = tmp_path_factory.mktemp("answers")
    torch.manual_seed(4)
    sizes = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 48}
    names = dict(enumerate(CLASSES))
    config = transformers.ViTConfig(**sizes, image_size=SIDE, patch_size=8, id2label=names, initializer_range=0.2)
    transformers.ViTForImageClassification(config).save_pretrained(folder / "tiny-vit")
    transformers.ViTImageProcessor(size={"height": SIDE, "width": SIDE}).save_pretrained(folder / "tiny-vit")
    model = f"transformers:{folder / 'tiny-vit'}"
    if not SLOW:
        return unjudged(resolve_model(model), folder / "build", ("web",), FP32)
    asked = [word for target in TARGETS for word in ("-t", target)]
    assert exit_code("export", model, *asked, "-o", str(folder / "build")) == 0
    return folder / "build" / "tiny-vit"


@pytest.fixture(scope="module")
def sampled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A classifier with an evaluation set of pictures in bytes."""
    spec = resolve_model("tools.exam.models:classifier")
    return unjudged(spec, tmp_path_factory.mktemp("sampled"), ("web",), FP32)


@pytest.fixture
def page(browser: Browser, build: Path) -> Iterator[Page]:
    with Server(build / "web") as server:
        context = browser.new_context(viewport={"width": 1280, "height": 860}, reduced_motion="reduce")
        context.set_default_timeout(60_000)
        opened = context.new_page()
        opened.goto(server.url)
        yield opened
        context.close()


def picture() -> Array:
    """Stripes and a gradient in the model's own size: nothing is resized."""
    rows, columns = np.mgrid[0:SIDE, 0:SIDE]
    return np.stack([8 * rows, 255 * (columns // 4 % 2), 4 * (rows + columns)], 2).clip(0, 255).astype(np.uint8)


def as_png(pixels: Array) -> bytes:
    made = io.BytesIO()
    Image.fromarray(pixels).save(made, "PNG")
    return made.getvalue()


def right(build: Path) -> Array:
    """The logits that ONNX Runtime gives for the picture."""
    with closing(OrtRuntime(build / "onnx" / "model.onnx")) as runtime:
        images = (picture().astype(np.float32) / 255).transpose(2, 0, 1)[None]
        return np.asarray(runtime.run({"images": images})["logits"][0])


@pytest.mark.skipif(not SLOW, reason="takes half a minute: set EDGEKIT_SLOW=1")
def test_every_target_of_the_folder_is_verified(build: Path) -> None:
    said = {target: read_artifact(build / target).verdicts for target in TARGETS}
    assert {v.status for verdicts in said.values() for v in verdicts} == {"verified"}, said
    assert all(said.values())
    notes = read_artifact(build / "onnx-int8-static").notes
    assert any("parts of photographs that ship with edgekit" in note for note in notes), notes


def test_the_library_gives_every_output_by_name(page: Page, build: Path) -> None:
    assert load(page, device="wasm", dtype="fp32")["name"] == "tiny-vit"
    found = page.evaluate(OUTPUTS, list(as_png(picture())))
    assert (found["names"], found["role"], found["shape"]) == (["logits"], "logits", [1, len(CLASSES)])
    assert (found["length"], found["present"], found["rows"]) == (0, None, 0)
    np.testing.assert_allclose(found["data"], right(build), atol=1e-4)


def test_the_page_names_the_likeliest_classes_of_a_picture(page: Page, build: Path) -> None:
    page.set_input_files("#file", {"name": "mine.png", "mimeType": "image/png", "buffer": as_png(picture())})
    page.locator(".classes li").first.wait_for()
    logits = right(build).astype(np.float64)
    shares = np.exp(logits - logits.max()) / np.exp(logits - logits.max()).sum()
    best = [CLASSES[place] for place in np.argsort(-shares)[:5]]
    shown = [item.split("\n") for item in page.locator(".classes li").all_inner_texts()]
    assert [name for name, _ in shown] == best
    near = 2.0 if SLOW else 0.06  # with every variant in the bundle the page may choose fp16 or INT8
    assert float(shown[0][1].removesuffix(" %")) == pytest.approx(100 * shares.max(), abs=near)
    assert best[0] in page.inner_text("#answers-live")


def test_what_belongs_to_queries_and_patches_is_not_shown(page: Page) -> None:
    page.set_input_files("#file", {"name": "mine.png", "mimeType": "image/png", "buffer": as_png(picture())})
    page.locator(".answers").wait_for()
    for selector in (".query-field", ".map-controls", ".savings", ".patch", ".top-patches", "#compare", "#answer-line"):
        assert page.locator(selector).is_hidden(), selector
    assert page.locator("#notice").is_hidden()


@pytest.mark.nightly
def test_pictures_of_the_evaluation_set_are_samples_and_other_outputs_stand_in_numbers(
    browser: Browser, sampled: Path
) -> None:
    with Server(sampled / "web") as server:
        context = browser.new_context(reduced_motion="reduce")
        context.set_default_timeout(60_000)
        opened = context.new_page()
        opened.goto(server.url)
        opened.locator(".classes li").first.wait_for()
        assert opened.locator("#strip .tile[aria-pressed]").count() == 8
        first = opened.locator(".classes li").first.inner_text().split("\n")[0]
        assert opened.inner_text('.answers section[aria-label="label"] p') == first.removeprefix("class ")
        context.close()


SELF_TEST = """async () => {
  const { load } = await import("./edgekit.js");
  const runner = await load("./", { device: "wasm", dtype: "fp32" });
  return runner.info.selfTest;
}"""


@pytest.mark.nightly(but=("build-2",))
@pytest.mark.parametrize(("name", "cases"), [("build", 2), ("sampled", 3)])
def test_a_bundle_without_scores_tests_itself_and_one_with_changed_weights_fails(
    name: str, cases: int, browser: Browser, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """Photographs are the cases of the one; bytes of an evaluation set, in a further width too, those of the other."""
    whole = request.getfixturevalue(name) / "web"
    assert read_artifact(whole).bundle.golden == "golden.json"
    changed = Path(shutil.copytree(whole, tmp_path / "web"))
    _change_weights(changed)
    found = {}
    for folder in (whole, changed):
        with Server(folder) as server:
            context = browser.new_context(service_workers="block")
            opened = context.new_page()
            opened.goto(server.url + "icon.svg")
            try:
                found[folder] = opened.evaluate(SELF_TEST)
            except Exception as error:
                found[folder] = str(error)
            context.close()
    report = found[whole]
    assert (report["pass"], len(report["cases"])) == (True, cases), report
    assert all(0 < case["limit"] < 1 for case in report["cases"])
    assert "on wasm failed in case" in found[changed]
    assert "of the output" in found[changed]


def _change_weights(bundle: Path) -> None:
    """Add one to a weight of the last layer, and enter the file's hash: only the self-test sees it.

    One, not all: what a layer norm gives has the sum 0, so that a whole row of weights may move. Other variants become
    the same graph, so that none takes its place.
    """
    path = bundle / "onnx" / "model.onnx"
    model = onnx.load(path)
    weights = {t.name: t for t in model.graph.initializer if t.data_type == onnx.TensorProto.FLOAT and t.dims}
    last = next(weights[name] for node in reversed(model.graph.node) for name in node.input if name in weights)
    values = onnx.numpy_helper.to_array(last).copy()
    values.flat[0] += 1
    last.CopyFrom(onnx.numpy_helper.from_array(values, last.name))
    for variant in (bundle / "onnx").glob("*.onnx"):
        onnx.save(model, variant)
        for packed, pack in ((".gz", gzip.compress), (".br", brotli.compress)):
            variant.with_name(variant.name + packed).write_bytes(pack(variant.read_bytes()))
    resealed(bundle)


def test_the_classes_stand_in_the_manifest(build: Path) -> None:
    (logits,) = json.loads((build / "web" / "manifest.json").read_text())["outputs"]
    assert tuple(logits["classes"]) == CLASSES
