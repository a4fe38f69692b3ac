"""A bundle around a model of a few operators with ARR-COC's interface, so that browser tests take seconds."""

from __future__ import annotations

import base64
from pathlib import Path

import numpy as np
import onnx
import torch
from onnx import TensorProto, helper, numpy_helper
from PIL import Image

from edgekit.artifact.manifest import AxisInfo, BundleInfo, Manifest, TensorInfo, Variant, VerdictSummary
from edgekit.artifact.store import commit
from edgekit.model.spec import Array, ModelSpec, Output
from edgekit.reference import golden
from edgekit.runtime.ort import OrtRuntime
from edgekit.storage.files import dump_json, write_text
from edgekit_arrcoc import queries
from edgekit_targets.web import export as web
from edgekit_targets.web import site
from tests.manifests import manifest
from training import presence

QUERIES = ("red circle", "large blue star", "striped", "outline", "small green", "yellow ring", "cross")
"""One a picture; the last picture has no answer to its own."""
EDGE, TOP, WIDTH = 224, 32, 768
CREDIT = "Adapted from a photograph by A. Person (CC-BY-4.0)"
THRESHOLD = 0.5


def make(folder: Path) -> Path:
    """Write the bundle; returns its folder."""
    folder.mkdir(parents=True)
    site.copy(site.find(), folder, asyncify=True)
    (folder / "onnx").mkdir()
    for dtype, rounding in {"fp32": None, "fp16": np.float16, "q8": np.float16}.items():
        onnx.save(_graph(rounding), folder / web.PATHS[dtype])
    vocabulary = queries.vocabulary()
    queries.save(vocabulary, folder)
    presence.save(THRESHOLD, folder)
    cases = tuple(_case(folder, number, query) for number, query in enumerate(QUERIES))
    limits = {
        name: {"relevance": {"max_abs": limit}, "budgets": {"max_abs": 1 + 336 * limit}, "indices": {"lost_mass": 0.02}}
        for name, limit in (("fp32", 1e-4), ("fp16", 1e-2), ("q8", 2e-2), ("delegated", 1e-3))
    }
    golden.write_golden(folder, golden.Golden(cases[:2], _spec(), {}), limits)
    (folder / "samples").mkdir()
    rows: list[dict[str, object]] = []
    for case, query in zip(cases, QUERIES, strict=True):
        Image.fromarray(np.asarray(case.image)).save(folder / "samples" / f"{case.name}.png")
        row: dict[str, object] = {"file": f"samples/{case.name}.png", "query": query, "title": query}
        rows.append({**row, **_answered(folder, case, query)})
    rows[0]["vector"] = base64.b64encode(cases[0].inputs["queries"].astype("<f4").tobytes()).decode()
    rows[1]["credit"] = CREDIT
    write_text(folder / "samples.json", dump_json({"samples": rows, "trained_on": "discs on gradients"}))
    web._stamp(folder)
    site.write_headers(folder)
    commit(folder, _manifest())
    return folder


def _graph(rounding: type[np.floating] | None) -> onnx.ModelProto:
    """Relevance: how well a patch's mean colour fits the query's, squashed."""
    generator = np.random.Generator(np.random.PCG64(7))
    mix = (generator.standard_normal((WIDTH, 3)) * 1.5).astype(np.float32)
    if rounding:
        mix = mix.astype(rounding).astype(np.float32)
    constants = {
        "mix": mix,
        "flat": np.array([0, 3, -1], np.int64),
        "one": np.array([1], np.int64),
        "last": np.array([2], np.int64),
        "k": np.array([TOP], np.int64),
        "triple": np.array([1, 1, 3], np.int64),
        "low": np.float32(64.5),
        "range": np.float32(336),
        "half": np.float32(0.5),
        "gain": np.float32(6),
    }
    node = helper.make_node
    nodes = [
        node("AveragePool", ["images"], ["pooled"], kernel_shape=[16, 16], strides=[16, 16]),
        node("Reshape", ["pooled", "flat"], ["colours"]),
        node("MatMul", ["queries", "mix"], ["wanted"]),
        node("Unsqueeze", ["wanted", "one"], ["row"]),
        node("Sub", ["colours", "half"], ["signed"]),
        node("MatMul", ["row", "signed"], ["match"]),
        node("Squeeze", ["match", "one"], ["fit"]),
        node("Mul", ["fit", "gain"], ["strong"]),
        node("Sigmoid", ["strong"], ["relevance"]),
        node("Mul", ["relevance", "range"], ["spread"]),
        node("Add", ["spread", "low"], ["raised"]),
        node("Floor", ["raised"], ["whole"]),
        node("Cast", ["whole"], ["budgets"], to=TensorProto.INT64),
        node("TopK", ["relevance", "k"], ["best", "indices"]),
        node("Transpose", ["colours"], ["features"], perm=[0, 2, 1]),
        node("Unsqueeze", ["indices", "last"], ["where"]),
        node("Expand", ["where", "triple"], ["everywhere"]),
        node("GatherElements", ["features", "everywhere"], ["tokens"], axis=1),
    ]
    info = helper.make_tensor_value_info
    inputs = [
        info("images", TensorProto.FLOAT, ["batch", 3, "height", "width"]),
        info("queries", TensorProto.FLOAT, ["batch", WIDTH]),
    ]
    outputs = [
        info("relevance", TensorProto.FLOAT, ["batch", "patches"]),
        info("budgets", TensorProto.INT64, ["batch", "patches"]),
        info("indices", TensorProto.INT64, ["batch", TOP]),
        info("tokens", TensorProto.FLOAT, ["batch", TOP, 3]),
    ]
    tensors = [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()]
    graph = helper.make_graph(nodes, "small", inputs, outputs, tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)


def _case(folder: Path, number: int, query: str) -> golden.Case:
    image = _picture(number)
    vector = queries.vocabulary().encode(query)
    runtime = OrtRuntime(folder / web.PATHS["fp32"])
    pixels = image.astype(np.float32).transpose(2, 0, 1)[None] / np.float32(255)
    answer = runtime.run({"images": pixels, "queries": vector[None]})
    runtime.close()
    expected = {name: answer[name] for name in ("relevance", "budgets", "indices")}
    return golden.Case(f"{number:03d}", image, {"queries": vector[None]}, expected)


def _answered(folder: Path, case: golden.Case, query: str) -> dict[str, object]:
    """What a sample's picture answers, and whether it has no answer to its query."""
    runtime = OrtRuntime(folder / web.PATHS["fp32"])
    pixels = np.asarray(case.image).astype(np.float32).transpose(2, 0, 1)[None] / np.float32(255)

    def present(text: str) -> bool:
        vector = queries.vocabulary().encode(text)[None]
        return bool(runtime.run({"images": pixels, "queries": vector})["relevance"].max() >= THRESHOLD)

    whole = present(query)
    answered = [text for text in dict.fromkeys((query, *query.split(), "circle", "object")) if present(text)]
    runtime.close()
    return {"queries": answered, **({} if whole else {"absent": True})}


def _spec() -> ModelSpec:
    """Of the model the outputs alone: what golden vectors are written by."""
    return ModelSpec(
        name="small",
        module=torch.nn.Identity(),
        inputs=(),
        outputs=(
            Output("relevance", "scores"),
            Output("budgets", "counts", "relevance", "int64", low=64, high=400),
            Output("indices", "ranking", "relevance", "int64"),
        ),
    )


def _picture(seed: int) -> Array:
    """Discs of many colours on a gradient, [224, 224, 3] uint8; the last is a red rectangle on white."""
    if seed == len(QUERIES) - 1:
        plain = np.full((EDGE, EDGE, 3), 255, np.uint8)
        plain[40:160, 40:130] = 200, 40, 40
        return plain
    generator = np.random.Generator(np.random.PCG64(seed))
    rows, columns = np.mgrid[0:EDGE, 0:EDGE] / EDGE
    corners = generator.uniform(30, 225, (2, 3))
    picture = corners[0] + (corners[1] - corners[0]) * ((rows + columns) / 2)[..., None]
    for _ in range(9):
        row, column, radius = *generator.uniform(0, 1, 2), generator.uniform(0.05, 0.18)
        picture[(rows - row) ** 2 + (columns - column) ** 2 < radius**2] = generator.uniform(0, 255, 3)
    return np.asarray(np.rint(picture), np.uint8)


def _manifest() -> Manifest:
    edge = AxisInfo(default=EDGE, minimum=96, maximum=512, multiple_of=16, dynamic=True)
    batch = AxisInfo(default=1, minimum=1, maximum=8, multiple_of=1, dynamic=True)
    return manifest(
        target="web",
        precision="mixed",
        entry="index.html",
        inputs=(
            TensorInfo(name="images", dtype="float32", shape=("batch", 3, "height", "width"), kind="image"),
            TensorInfo(name="queries", dtype="float32", shape=("batch", WIDTH), kind="query", low=-1.0),
        ),
        outputs=(
            TensorInfo(name="relevance", dtype="float32", shape=("batch", 196), role="scores", threshold=THRESHOLD),
            TensorInfo(name="budgets", dtype="int64", shape=("batch", 196), role="counts", of="relevance"),
            TensorInfo(name="indices", dtype="int64", shape=("batch", TOP), role="ranking", of="relevance"),
            TensorInfo(name="tokens", dtype="float32", shape=("batch", TOP, 3), role="features", of="indices"),
        ),
        axes={"batch": batch, "height": edge, "width": edge},
        verdicts=tuple(VerdictSummary(place=f"wasm-{name}", status="verified") for name in web.PATHS),
        bundle=BundleInfo(
            variants=tuple(
                Variant(name=name, precision=web.PRECISIONS[name], path=path, target="onnx")
                for name, path in web.PATHS.items()
            ),
            golden=golden.JSON,
        ),
    )
