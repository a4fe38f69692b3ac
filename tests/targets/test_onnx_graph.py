"""What the ONNX target does to a graph: fewer operators, the same answers at every size."""

from __future__ import annotations

import warnings
from collections import Counter
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from edgekit.arrcoc.texture import texture_array
from edgekit.model.contract import checked
from edgekit.model.graph import capture
from edgekit.model.program import save_program
from edgekit.model.spec import Axis, Input, ModelSpec, Output
from edgekit.runtime.ort import OrtRuntime
from edgekit.target import Job
from edgekit_targets import onnx as target
from tools.zoo.vision import swin

PATCH, WIDTH, HEADS = 8, 32, 2


class Transformer(nn.Module):
    """A vision transformer of one block, as people write it."""

    def __init__(self, padding: int = 0, causal: bool = False, picked: int = 3, shift: float = 0.5) -> None:
        super().__init__()
        self.padding, self.causal, self.picked, self.shift = padding, causal, picked, shift
        self.patch = nn.Conv2d(3, WIDTH, PATCH, PATCH, padding=padding)
        self.norm = nn.LayerNorm(WIDTH)
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
        self.out = nn.Linear(WIDTH, WIDTH)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 2 * WIDTH), nn.GELU(), nn.Linear(2 * WIDTH, WIDTH, bias=False))

    def forward(self, images: Tensor) -> Tensor:
        rows = self.patch((images - self.shift) * 3.0).flatten(2).transpose(1, 2)
        batch, count = rows.shape[0], rows.shape[1]
        packed = self.qkv(self.norm(rows)).reshape(batch, count, 3, HEADS, WIDTH // HEADS).permute(2, 0, 3, 1, 4)
        query, key, value = packed[0], packed[1], packed[self.picked - 1]
        mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=self.causal)
        rows = rows + self.out(mixed.transpose(1, 2).reshape(batch, count, WIDTH))
        answer: Tensor = rows + self.mlp(rows)
        return answer


def exported(module: nn.Module, folder: Path) -> tuple[ModelSpec, Path]:
    generator = torch.Generator().manual_seed(0)
    for parameter in module.parameters():
        nn.init.normal_(parameter, std=0.2, generator=generator)
    edge = Axis(32, 16, 64, PATCH)
    spec = ModelSpec(
        name="toy",
        module=module.eval(),
        inputs=(Input("images", ("batch", 3, "height", "width"), kind="image"),),
        outputs=(Output("rows"),),
        axes={"batch": Axis(1, 1, 4), "height": edge, "width": edge},
        factory=f"{__name__}:spec",
    )
    save_program(capture(spec), folder / "program", "toy")
    (folder / "onnx").mkdir()
    job = Job(model=folder, reference=folder, options={"opset": target.OPSET.default})
    with mock.patch.object(target, "load_model", return_value=spec):
        target.export(folder / "program", folder / "onnx", job)
    return spec, folder / "onnx" / target.ENTRY


def operators(path: Path) -> Counter[str]:
    import onnx

    return Counter(node.op_type for node in onnx.load(path).graph.node)


@pytest.mark.parametrize(
    "changes", [{}, {"padding": 1}, {"causal": True}, {"picked": 2}, {"shift": 0.0}], ids=lambda c: str(c)
)
def test_answers_like_the_module_at_every_size(changes: dict[str, object], tmp_path: Path) -> None:
    spec, path = exported(Transformer(**changes), tmp_path)  # type: ignore[arg-type]
    runtime = OrtRuntime(path)
    for sizes in ((1, 32, 32), (2, 16, 64), (3, 64, 24)):
        inputs = spec.random(1, dict(zip(("batch", "height", "width"), sizes, strict=True)))
        with torch.no_grad():
            right = spec.module(torch.from_numpy(inputs["images"])).numpy()
        np.testing.assert_allclose(runtime.run(inputs)["rows"], right, atol=2e-5 * float(np.abs(right).max()))


def test_the_trunk_is_gemm_and_nothing_is_copied_twice(tmp_path: Path) -> None:
    found = operators(exported(Transformer(), tmp_path)[1])
    assert found["Gemm"] == 4  # patches, qkv, out, the first of the mlp
    assert found["Conv"] == found["Gather"] == found["Sub"] == 0
    assert found["MatMul"] == 3  # two of attention, and the linear layer without a bias
    assert found["Split"] == 1
    assert found["Transpose"] == 4  # tiles, heads, keys, merge


def test_nodes_keep_the_names_of_their_modules(tmp_path: Path) -> None:
    import onnx

    graph = onnx.load(exported(Transformer(), tmp_path)[1]).graph
    named = {node.name for node in graph.node if node.op_type == "Gemm"}
    assert named == {"patch/Gemm", "qkv/Gemm", "out/Gemm", "mlp.0/Gemm"}


def test_attention_whose_batch_is_of_windows_is_translated(tmp_path: Path) -> None:
    """Swin: the exporter takes its attention apart, and viewed the answer as PyTorch's kernel lays it out."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        spec = checked(swin())
        graph = target._translate(spec, capture(spec), 20)
    (tmp_path / "model.onnx").write_bytes(graph.SerializeToString())
    x = spec.random(0, {"batch": 3})
    (right,) = (y.detach().numpy() for y in spec.module(torch.from_numpy(x["pixel_values"])))
    np.testing.assert_allclose(OrtRuntime(tmp_path / "model.onnx").run(x)["logits"], right, atol=1e-4)


@pytest.mark.parametrize(("given", "made"), [("ids", "embedding"), ("embedding", "rows")])
def test_inner_tensors_make_way_for_the_names_of_inputs_and_outputs(given: str, made: str, tmp_path: Path) -> None:
    """The exporter calls what an embedding layer gives "embedding"."""
    net = nn.Sequential(nn.Embedding(10, 8), nn.ReLU(), nn.Linear(8, 4)).eval()
    ids = (Input(given, ("batch", 5), dtype="int64", low=0, high=9),)
    spec = checked(ModelSpec("toy", net, ids, (Output(made),), {"batch": Axis(1, 1, 3)}))
    graph = target._translate(spec, capture(spec), 20)
    (tmp_path / "model.onnx").write_bytes(graph.SerializeToString())
    x = spec.random(0, {"batch": 3})
    with torch.no_grad():
        right = net(torch.from_numpy(x[given])).numpy()
    np.testing.assert_allclose(OrtRuntime(tmp_path / "model.onnx").run(x)[made], right, atol=1e-5)


class Edges(nn.Module):
    """The length of gradients, as arr-coc-0.1 has it."""

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return texture_array(images)[:, 7:8]


def test_the_edges_of_arr_coc_01_keep_their_epsilon(tmp_path: Path) -> None:
    """The exporter takes a number of 1e-8 for zero: a flat picture's edges would then be rounding alone."""
    images = Input("images", ("batch", 3, 32, 32))
    spec = checked(ModelSpec("toy", Edges(), (images,), (Output("y"),), {"batch": Axis(1, 1, 3)}))
    graph = target._translate(spec, capture(spec), 20)
    (tmp_path / "model.onnx").write_bytes(graph.SerializeToString())
    x = spec.random(0, {"batch": 2})["images"] * np.float32(0.002) + np.float32(0.5)
    right = spec.module(torch.from_numpy(x)).numpy()
    np.testing.assert_allclose(OrtRuntime(tmp_path / "model.onnx").run({"images": x})["y"], right, atol=1e-3)
