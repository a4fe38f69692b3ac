"""A build of a toy model with artifacts that no runtime need open, made by edgekit's own writers."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from edgekit.artifact.manifest import AxisInfo, BundleInfo, TensorInfo, Variant, VerdictSummary
from edgekit.artifact.store import amend, own_files
from edgekit.artifact.store import commit as commit_artifact
from edgekit.model.folder import save_model
from edgekit.model.records import recorded_weights
from edgekit.model.spec import Axis, EvaluationSet, Input, ModelSpec, Output
from edgekit.reference.batches import batches_for
from edgekit.reference.store import write_reference
from edgekit.runtime.eager import EagerRuntime
from edgekit.storage.files import staging
from tests.manifests import manifest

GOLDEN = Path(__file__).parents[2] / "golden"
LARGEST = 32
"""Pixels of a side that the model of a build declares; its artifacts are fixed at 16."""
LISTED = b"- aten::topk\n- aten::shift_"
FILES = {
    "torch-mobile": {"model.ptl": b"lite" * 999, "operators.yaml": LISTED},
    "executorch": {"model.pte": b"flat" * 777},
    "executorch-int8": {"model.pte": b"int8" * 200},
    "litert": {"model.tflite": b"....TFL3" * 333},
    "litert-int8": {"model.tflite": b"....TFL3" * 99},
    "mnn": {"model.mnn": b"mnn " * 111},
    "coreai": {"model.aimodel/metadata.json": b"{}", "model.aimodel/main.mlirb": b"bytecode" * 44},
    "coreml": {"Toy.mlpackage/Manifest.json": b"{}", "Toy.mlpackage/Data/model.mlmodel": b"program" * 55},
}


def spec(shift: float = 0.0, name: str = "toy", largest: int = 16) -> ModelSpec:
    """Scores are how red each of 16 patches (more in larger pictures) is, tilted by the query."""
    import torch

    class Toy(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.shift = torch.nn.Parameter(torch.tensor(shift))

        def forward(self, images: torch.Tensor, queries: torch.Tensor) -> tuple[torch.Tensor, ...]:
            patches = torch.nn.functional.avg_pool2d(images, 4).flatten(2)
            tilt = torch.sigmoid(queries.mean(1, keepdim=True) + self.shift)
            scores = 0.6 * patches[:, 0] + 0.3 * patches[:, 1] * tilt + 0.1 * patches[:, 2] ** 2
            return scores, torch.floor(64 + 336 * scores + 0.5).long(), torch.topk(scores, 4)[1]

    return ModelSpec(
        name=name,
        module=Toy().eval(),
        inputs=(
            Input("images", ("batch", 3, "height", "width"), kind="image"),
            Input("queries", ("batch", 24), low=-1.0, kind="query"),
        ),
        outputs=(
            Output("relevance", "scores"),
            Output("budgets", "counts", "relevance", "int64", 64, 400),
            Output("indices", "ranking", "relevance", "int64"),
        ),
        axes={"batch": Axis(1, 1, 2), "height": Axis(16, 16, largest, 4), "width": Axis(16, 16, largest, 4)},
        factory=f"{__name__}:{'spec' if largest == 16 else 'larger'}",
        evaluation=evaluation,
        files={name: GOLDEN / name for name in ("vocabulary.json", "embeddings.bin")},
    )


def larger() -> ModelSpec:
    """The model of a build."""
    return spec(largest=LARGEST)


def evaluation() -> EvaluationSet:
    """Three images of bytes."""
    draw = np.random.default_rng(0)
    images = draw.integers(0, 256, (3, 3, 16, 16)).astype(np.float32) / np.float32(255)
    queries = draw.uniform(-1, 1, (3, 24)).astype(np.float32)
    return EvaluationSet(inputs={"images": images, "queries": queries}, names=("one", "two", "three"))


def build(folder: Path, shift: float = 0.0, name: str = "toy") -> Path:
    """Write a build folder; `shift` makes another model of the same name."""
    made = spec(shift, name, LARGEST)
    save_model(made, folder / "model")
    runtime = EagerRuntime(spec(shift))
    batches = tuple(replace(batch, outputs=runtime.run(batch.inputs)) for batch in batches_for(made, evaluation())[:2])
    info: dict[str, object] = {
        "device": 'NVIDIA H200 "$1"',
        "noise": {},
        "weights_sha256": recorded_weights(folder / "model"),
    }
    write_reference(folder / "reference", batches, info, with_inputs=True)
    for target, files in FILES.items():
        commit(folder / target, target, {n: data + f"{shift}".encode() for n, data in files.items()}, name=name)
    commit(folder / "onnx", "onnx", {"model.onnx": onnx_model(shift)}, name=name)
    return folder


def commit(
    folder: Path,
    target: str,
    files: dict[str, bytes],
    status: str = "verified",
    name: str = "toy",
    variants: tuple[Variant, ...] = (),
) -> None:
    """Write one artifact."""
    entry = next(iter(files)).partition("/")[0]
    precision = "int8" if target.endswith("int8") else "fp16" if target == "coreml" else "fp32"
    declared = larger()
    with staging(folder, own_files) as staged:
        for path, data in files.items():
            (staged / path).parent.mkdir(parents=True, exist_ok=True)
            (staged / path).write_bytes(data)
        whole = manifest(
            name=name,
            target=target,
            precision=precision,
            entry=entry,
            inputs=tuple(TensorInfo.of_input(i) for i in declared.inputs),
            outputs=tuple(
                TensorInfo.of_output(o, ("batch", 4 if o.role == "ranking" else 16)) for o in declared.outputs
            ),
            axes={n: AxisInfo.of_axis(a, n == "batch") for n, a in declared.axes.items()},
            bundle=BundleInfo(variants=variants),
        )
        commit_artifact(staged, whole)
    judge(folder, status)


def judge(folder: Path, status: str, reason: str = "") -> None:
    """Enter a verdict."""
    amend(folder, [VerdictSummary.model_validate({"place": "cpu", "status": status, "reason": reason})])


def onnx_model(shift: float) -> bytes:
    """MatMul and Softmax: ONNX Runtime fuses nothing of it away."""
    import onnx
    from onnx import TensorProto, helper

    weights = helper.make_tensor("w", TensorProto.FLOAT, [2, 2], [1.0, 2.0, 3.0, 4.0 + shift])
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"]), helper.make_node("Softmax", ["y"], ["z"])],
        "toy",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 2])],
        [helper.make_tensor_value_info("z", TensorProto.FLOAT, [1, 2])],
        [weights],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
    data: bytes = made.SerializeToString(deterministic=True)
    onnx.checker.check_model(made)
    return data


def android_app(folder: Path) -> Path:
    """An app module with files of its own."""
    (folder / "src/main/assets").mkdir(parents=True)
    (folder / "build.gradle.kts").write_text("android {}\n")
    (folder / "src/main/AndroidManifest.xml").write_text("<manifest />\n")
    (folder / "src/main/assets/own.txt").write_text("mine\n")
    return folder
