"""Quotients of integers are whole numbers of any size, in ONNX Runtime as in PyTorch."""

from __future__ import annotations

import onnx_ir
import onnxruntime
import pytest
import torch
from torch import Tensor, nn

from edgekit.model.graph import quiet
from edgekit_targets.onnx.passes import fourier, integers


class Quotients(nn.Module):
    def forward(self, x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        modes = [torch.div(x, y, rounding_mode=mode) for mode in ("floor", "trunc")]
        return (*modes, x // y, x // -3, torch.div(x, 7, rounding_mode="trunc"), x.float() // 2.5)


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64, torch.uint8])
def test_quotients(dtype: torch.dtype) -> None:
    most = 200 if dtype is torch.uint8 else 2**30 + 1
    x = torch.tensor([most, most - 1, 9, 7, 0, 6], dtype=dtype)
    y = torch.tensor([3, 1, 4, 7, 5, 100], dtype=dtype)
    if dtype is not torch.uint8:
        x, y = torch.cat([x, -x, x, -x]), torch.cat([y, y, -y, -y])
    module = (Quotients() if dtype is not torch.uint8 else Unsigned()).eval()
    with quiet():
        program = torch.onnx.export(
            module, (x, y), dynamo=True, custom_translation_table=integers.translations(), verbose=False
        )
    assert program is not None
    session = onnxruntime.InferenceSession(program.model_proto.SerializeToString())
    feed = {value.name: tensor.numpy() for value, tensor in zip(session.get_inputs(), (x, y), strict=True)}
    for got, right in zip(session.run(None, feed), module(x, y), strict=True):
        torch.testing.assert_close(torch.from_numpy(got), right, rtol=0, atol=0)


class Unsigned(nn.Module):
    def forward(self, x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        return torch.div(x, y, rounding_mode="floor"), x.float() // y


class Spectrum(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.q, self.k = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        spectrum = torch.fft.rfft(x, dim=1, norm="ortho").abs().mean(1)
        return torch.softmax(self.q(x) @ self.k(x).mT, -1) @ x, spectrum


def test_a_spectrum_of_an_open_length_runs() -> None:
    module, x = Spectrum().eval(), torch.rand(2, 12, 4)
    length = torch.export.Dim("length", min=4, max=32)
    with quiet():
        program = torch.onnx.export(module, (x,), dynamo=True, dynamic_shapes=({1: length},), verbose=False)
    assert program is not None
    fourier.drop_own_lengths(program.model)
    session = onnxruntime.InferenceSession(program.model_proto.SerializeToString())
    for size in (5, 12, 32):
        x = torch.rand(2, size, 4)
        with torch.no_grad():
            expected = module(x)
        for got, right in zip(session.run(None, {"x": x.numpy()}), expected, strict=True):
            torch.testing.assert_close(torch.from_numpy(got), right, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("measured", "start", "is_own"), [("x", 1, True), ("y", 1, False), ("x", 2, False), ("y", 0, True)]
)
def test_only_the_length_of_the_transformed_axis_is_dropped(measured: str, start: int, is_own: bool) -> None:
    model = onnx_ir.from_onnx_text(
        f"""<ir_version: 10, opset_import: ["" : 20]>
        own (float[batch, length, width, 1] x, float[length, other] y) => (float[batch, half, width, 2] z)
        <int64[1] first = {{0}}, int64 axis = {{1}}> {{
            size = Shape <start = {start}, end = {start + 1}> ({measured})
            n = Squeeze(size, first)
            z = DFT <onesided = 1> (x, n, axis)
        }}"""
    )
    fourier.drop_own_lengths(model)
    transform = next(node for node in model.graph if node.op_type == "DFT")
    assert (transform.inputs[1] is None) == is_own
