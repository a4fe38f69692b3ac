"""Modules trained with the rounding in them: PT2E's keep their learned ranges, others are refused in a sentence."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from torch import nn

import edgekit
from edgekit import EvaluationSet
from edgekit.errors import ModelError
from edgekit.model.sources.module import spec_of_module
from edgekit.model.spec import Array
from edgekit_targets.executorch import graph as graphs

with warnings.catch_warnings(action="ignore"):
    NEEDS = "needs executorch: pip install -e '.[executorch]'"
    pt2e = pytest.importorskip("torchao.quantization.pt2e.quantize_pt2e", reason=NEEDS)
    xnnpack = pytest.importorskip("executorch.backends.xnnpack.quantizer.xnnpack_quantizer", reason=NEEDS)

pytestmark = pytest.mark.filterwarnings("ignore")
ROWS = np.random.default_rng(0).normal(0, 1, (200, 3, 8, 8)).astype(np.float32)


def small() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(288, 4)).eval()


def prepared(net: nn.Module, rows: Array) -> torch.fx.GraphModule:
    """With the ranges of some rows."""
    size = {0: torch.export.Dim("batch", max=64)}
    captured = torch.export.export(net, (torch.from_numpy(rows[:4]),), dynamic_shapes=(size,)).module()
    quantizer = xnnpack.XNNPACKQuantizer()
    quantizer.set_global(xnnpack.get_symmetric_quantization_config(is_per_channel=True, is_qat=True))
    module: torch.fx.GraphModule = pt2e.prepare_qat_pt2e(captured, quantizer)
    with torch.no_grad():
        for start in range(0, len(rows), 50):
            module(torch.from_numpy(rows[start : start + 50]))
    return module


@pytest.mark.nightly
def test_what_pt2e_converted_keeps_its_ranges_and_is_judged_as_int8(tmp_path: Path) -> None:
    module = pt2e.convert_pt2e(prepared(small(), ROWS))
    build = edgekit.export(
        module,
        example=torch.from_numpy(ROWS[:1]),
        targets=["onnx", "executorch", "onnx-int8-static"],
        name="rounded",
        output=tmp_path,
        evaluation=EvaluationSet({"input": ROWS}, tuple(map(str, range(len(ROWS))))),
        inputs={"input": {"kind": "tensor"}},
    )
    assert {name: build[name].verdict for name in ("onnx", "executorch")} == {
        "onnx": "verified",
        "executorch": "verified",
    }
    assert "Leave 'onnx-int8-static' out" in build["onnx-int8-static"].sentences[0]
    manifest = build["onnx"].manifest
    assert manifest is not None
    assert (manifest.precision, manifest.export.self_quantized) == ("int8", True)
    graph = onnx.load(build["onnx"].path / "model.onnx").graph
    assert sum(node.op_type == "QuantizeLinear" for node in graph.node) >= 3
    learned = {
        float(a)
        for node in module.graph.nodes
        for a in node.args
        if "quantize_per_tensor" in str(node.target) and isinstance(a, float)
    }
    kept = {float(v) for i in graph.initializer if not i.dims for v in [onnx.numpy_helper.to_array(i)]}
    assert all(min(abs(scale - other) for other in kept) < 1e-6 * scale for scale in learned)


class Shut(nn.Module):
    """A gate that is always shut: the scale of its product is nothing beside that of large numbers."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x * 1e6
        return x * torch.relu(-x.abs())


@pytest.mark.nightly(but=("last0",))
@pytest.mark.parametrize("last", [nn.AdaptiveAvgPool2d(1), Shut()])
def test_what_xnnpack_cannot_compute_in_int8_stays_float_in_executorch(last: nn.Module) -> None:
    """Where the batch grows, its mean writes beyond its memory: a row was off by 6.5 of logits of 2."""
    net = nn.Sequential(nn.Conv2d(3, 8, 3), last, nn.Flatten())
    module = pt2e.convert_pt2e(prepared(net.eval(), ROWS))
    before = torch.export.export(module, (torch.from_numpy(ROWS[:1]),))
    changed = graphs.apply_workarounds("small", before)
    kinds = (torch.ops.aten.adaptive_avg_pool2d.default, torch.ops.aten.mul.Tensor)
    *_, found = (node for node in changed.graph.nodes if node.target in kinds)
    assert [user.target for user in found.users] == [torch.ops.aten.clamp.default]
    given = torch.from_numpy(ROWS[5:6])
    assert torch.equal(changed(given), module(given))


def test_what_is_prepared_and_not_converted_is_refused() -> None:
    with pytest.raises(ModelError, match=r"prepared for PT2E .* torchao's convert_pt2e"):
        spec_of_module(prepared(small(), ROWS), torch.ones(1, 3, 8, 8))
