"""What the page draws of outputs of other kinds: classes of points, a mask, a map, boxes, a plot, an embedding."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from onnx import TensorProto, helper, numpy_helper
from PIL import Image

from edgekit.model.spec import Array
from tests.web.conftest import DESKTOP, Opener
from tests.web.driving import serve
from tests.web.test_page import AXE

if TYPE_CHECKING:
    from playwright.sync_api import FilePayload

OUTPUTS: dict[str, dict[str, Any]] = {
    "points": {"role": "logits", "classes": ["red", "green", "blue"]},
    "inside": {"role": "mask"},
    "depth": {"role": "image"},
    "found": {"role": "boxes"},
    "vector": {"role": "embedding"},
    "profile": {"role": "tensor"},
}
PIXEL = """([x, y]) => { const canvas = document.querySelector("#map-a canvas");
  return [...canvas.getContext("2d").getImageData(x * canvas.width, y * canvas.height, 1, 1).data].slice(0, 3); }"""


def graph() -> bytes:
    """The mean colours of squares of 16 pixels, and what follows from them."""
    constants: dict[str, Array] = {
        "channel": np.array([1], np.int64),
        "rows": np.array([1, 2], np.int64),
        "places": np.array([2, 3], np.int64),
        "boxes": np.array([[[0.5, 0, 1, 1, 0.9], [0, 0, 0.2, 0.2, 0.1]]], np.float32),
    }
    node = helper.make_node
    nodes = [
        node("AveragePool", ["images"], ["points"], kernel_shape=[16, 16], strides=[16, 16]),
        node("ReduceMean", ["points", "channel"], ["inside"], keepdims=1),
        node("Neg", ["inside"], ["depth"]),
        node("Identity", ["boxes"], ["found"]),
        node("ReduceMean", ["points", "places"], ["vector"], keepdims=0),
        node("ReduceMean", ["points", "rows"], ["profile"], keepdims=0),
    ]
    info = helper.make_tensor_value_info
    inputs = [info("images", TensorProto.FLOAT, [1, 3, 224, 224])]
    outputs = [info(name, TensorProto.FLOAT, None) for name in OUTPUTS]
    tensors = [numpy_helper.from_array(value, name) for name, value in constants.items()]
    made = helper.make_graph(nodes, "outputs", inputs, outputs, tensors)
    model = helper.make_model(made, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    return bytes(model.SerializeToString())


def manifest(bundle: Path) -> bytes:
    described: dict[str, Any] = json.loads((bundle / "manifest.json").read_text())
    (images, _) = described["inputs"]
    images["shape"] = [1, 3, 224, 224]
    plain = {"dtype": "float32", "shape": []}
    described.update(inputs=[images], axes={})
    described["outputs"] = [{"name": name, **plain, **told} for name, told in OUTPUTS.items()]
    fp32 = [v for v in described["bundle"]["variants"] if v["name"] == "fp32"]
    described["bundle"] = {"variants": fp32, "golden": ""}
    return json.dumps(described).encode()


def half(left: tuple[int, int, int], right: tuple[int, int, int]) -> FilePayload:
    """A picture of two halves."""
    picture = Image.new("RGB", (224, 224), right)
    picture.paste(left, (0, 0, 112, 224))
    stream = io.BytesIO()
    picture.save(stream, "PNG")
    return {"name": "own.png", "mimeType": "image/png", "buffer": stream.getvalue()}


def test_every_output_is_shown_as_what_it_is(open_page: Opener, bundle: Path, url: str) -> None:
    page = open_page("manifest.json", service_workers="block", bypass_csp=True, **DESKTOP)
    serve(page, bundle, {"onnx/model.onnx": graph(), "manifest.json": manifest(bundle)})
    page.goto(url)
    page.locator(".answers").wait_for()
    page.set_input_files("#file", half((250, 0, 0), (0, 0, 120)))
    points = page.locator('.answers section[aria-label="points"] li')
    page.wait_for_function(
        "() => document.querySelector('#answers-live').textContent.includes('red 50.0 %, blue 50.0 %')"
    )
    assert [" ".join(item.split()) for item in points.all_inner_texts()] == ["red 50.0 %", "blue 50.0 %"]
    said = {
        name: page.inner_text(f'.answers section[aria-label="{name}"]')
        for name in ("inside", "found", "profile", "vector")
    }
    assert "The mask covers 0.0 % of the picture" in said["inside"]  # 0.33 and 0.16 are below the middle
    assert "1 box" in said["found"]
    assert "2 box" not in said["found"], "a box of the score 0.1 is none"
    assert "14 values from 0.1569 to 0.3268" in said["profile"]
    assert page.locator('.answers section[aria-label="profile"] canvas[aria-label="Plot of 14 values"]').count() == 1
    assert page.locator('.answers section[aria-label="depth"] canvas').count() == 1
    whole = page.evaluate(PIXEL, [0.25, 0.5]), page.evaluate(PIXEL, [0.75, 0.5])
    page.locator('.answers section[aria-label="inside"] button').click()
    masked = page.evaluate(PIXEL, [0.25, 0.5])
    assert masked != whole[0], "the mask is drawn instead of the classes"
    assert sum(masked) < sum(whole[0]), "outside of the mask it is dark"
    assert "Similarity to the kept picture" in said["vector"]
    page.get_by_role("button", name="Compare with this picture from now on").click()
    page.set_input_files("#file", half((0, 250, 0), (0, 250, 0)))
    page.locator('.answers section[aria-label="vector"]', has_text="kept picture: 0.000").wait_for()
    page.add_script_tag(path=str(AXE))
    found = page.evaluate("() => axe.run('.answers').then((r) => r.violations.map((v) => [v.id, v.nodes[0].html]))")
    assert found == []
