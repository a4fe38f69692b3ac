"""What the ONNX target does to a graph: fewer operators, the same answers at every size."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from edgekit.model.adapter import named_outputs, to_tensors
from edgekit.model.contract import check_spec
from edgekit.model.graph import capture
from edgekit.model.program import save_program
from edgekit.model.spec import Array, Axis, Input, ModelSpec, Output
from edgekit.runtime.ort import OrtRuntime
from edgekit.target import Job
from edgekit_arrcoc.texture import texture_array
from edgekit_targets.onnx import export as target
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


def vision(module: nn.Module) -> ModelSpec:
    generator = torch.Generator().manual_seed(0)
    for parameter in module.parameters():
        nn.init.normal_(parameter, std=0.2, generator=generator)
    edge = Axis(32, 16, 64, PATCH)
    return ModelSpec(
        name="toy",
        module=module.eval(),
        inputs=(Input("images", ("batch", 3, "height", "width"), kind="image"),),
        outputs=(Output("rows"),),
        axes={"batch": Axis(1, 1, 4), "height": edge, "width": edge},
        factory=f"{__name__}:spec",
    )


def exported(spec: ModelSpec, folder: Path) -> Path:
    """The target's file."""
    save_program(capture(spec), folder / "program", "toy")
    (folder / "onnx").mkdir()
    job = Job(model=folder, reference=folder, options={"opset": target.OPSET.default})
    with mock.patch.object(target, "load_declaration", return_value=spec):
        target.export(folder / "program", folder / "onnx", job)
    return folder / "onnx" / target.ENTRY


def assert_same(spec: ModelSpec, path: Path, inputs: Mapping[str, Array], share: float) -> None:
    """The answers are the module's; `share` of their peak."""
    with torch.no_grad():
        right = named_outputs(spec, spec.module(*to_tensors(spec, inputs)))
    answers = OrtRuntime(path).run(inputs)
    for name, array in right.items():
        np.testing.assert_allclose(answers[name], array, atol=share * float(np.abs(array).max()))


@pytest.mark.nightly(but=("{}", "causal"))
@pytest.mark.parametrize(
    "changes", [{}, {"padding": 1}, {"causal": True}, {"picked": 2}, {"shift": 0.0}], ids=lambda c: str(c)
)
def test_answers_like_the_module_at_every_size(changes: dict[str, object], tmp_path: Path) -> None:
    spec = vision(Transformer(**changes))  # type: ignore[arg-type]
    path = exported(spec, tmp_path)
    for sizes in ((1, 32, 32), (2, 16, 64), (3, 64, 24)):
        assert_same(spec, path, spec.random(1, dict(zip(("batch", "height", "width"), sizes, strict=True))), 2e-5)


def test_patches_are_a_gemm_nodes_keep_their_modules_names_and_attention_is_two_products(tmp_path: Path) -> None:
    import onnx

    nodes = onnx.load(exported(vision(Transformer()), tmp_path)).graph.node
    assert {n.name for n in nodes if n.op_type == "Gemm"} == {"patch/Gemm"}
    found = Counter(node.op_type for node in nodes)
    assert found["Conv"] == found["Sub"] == 0
    assert {"qkv/MatMul", "out/MatMul", "mlp.0/MatMul"} <= {n.name for n in nodes}
    assert found["MatMul"] == 6  # two of attention, and four linear layers
    assert found["Transpose"] == 4  # tiles, heads, keys, merge


@pytest.mark.nightly
def test_attention_whose_batch_is_of_windows_is_translated(tmp_path: Path) -> None:
    """Swin: the exporter takes its attention apart, and viewed the answer as PyTorch's kernel lays it out."""
    with warnings.catch_warnings(action="ignore"):
        spec = check_spec(swin())
        path = exported(spec, tmp_path)
    assert_same(spec, path, spec.random(0, {"batch": 3}), 1e-4)


@pytest.mark.parametrize(("given", "made"), [("ids", "embedding"), ("embedding", "rows")])
def test_inner_tensors_make_way_for_the_names_of_inputs_and_outputs(given: str, made: str, tmp_path: Path) -> None:
    """The exporter calls what an embedding layer gives "embedding"."""
    net = nn.Sequential(nn.Embedding(10, 8), nn.ReLU(), nn.Linear(8, 4)).eval()
    ids = (Input(given, ("batch", 5), dtype="int64", low=0, high=9),)
    spec = check_spec(ModelSpec("toy", net, ids, (Output(made),), {"batch": Axis(1, 1, 3)}))
    assert_same(spec, exported(spec, tmp_path), spec.random(0, {"batch": 3}), 1e-5)


class Edges(nn.Module):
    """The length of gradients, as arr-coc-0.1 has it."""

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return texture_array(images)[:, 7:8]


@pytest.mark.nightly
def test_the_edges_of_arr_coc_01_keep_their_epsilon(tmp_path: Path) -> None:
    """The exporter takes a number of 1e-8 for zero: a flat picture's edges would then be rounding alone."""
    images = Input("images", ("batch", 3, 32, 32))
    spec = check_spec(ModelSpec("toy", Edges(), (images,), (Output("y"),), {"batch": Axis(1, 1, 3)}))
    x = spec.random(0, {"batch": 2})["images"] * np.float32(0.002) + np.float32(0.5)
    assert_same(spec, exported(spec, tmp_path), {"images": x}, 1e-3)
