"""Attention as plain operators: PyTorch's own answers, fewer operators than PyTorch's own translation."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from edgekit_targets.onnx.passes import patterns
from tests.targets.onnx.passes.graphs import answers, operators

BATCH, HEADS, COUNT, SIZE = 2, 3, 5, 4


class Attention(nn.Module):
    """Attention of given queries, keys and values, [B, heads, N, d] each."""

    def __init__(self, options: dict[str, Any]) -> None:
        super().__init__()
        self.options = options

    def forward(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        return functional.scaled_dot_product_attention(query, key, value, **self.options)


def exported(module: nn.Module, inputs: tuple[Tensor, ...], table: dict[Any, Any] | None) -> onnx.ModelProto:
    with warnings.catch_warnings(action="ignore"):  # the exporter's deprecated helpers
        names = ["query", "key", "value", "mask"]
        made = torch.onnx.export(
            module.eval(), inputs, dynamo=True, opset_version=20, verbose=False, input_names=names[: len(inputs)],
            output_names=["y"], custom_translation_table=table,
        )  # fmt: skip
    assert made is not None
    return made.model_proto


def test_a_row_that_is_masked_from_end_to_end_is_zeros() -> None:
    class Masked(nn.Module):
        def forward(self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor) -> Tensor:
            return functional.scaled_dot_product_attention(query, key, value, attn_mask=mask)

    generator = torch.Generator().manual_seed(0)
    inputs = [torch.randn(BATCH, HEADS, COUNT, SIZE, generator=generator) for _ in range(3)]
    mask = torch.rand(BATCH, 1, COUNT, COUNT, generator=generator) < 0.5
    mask[0, :, 1], mask[1, :, 2] = False, True
    graph = exported(Masked(), (*inputs, mask), patterns.attention_translations())
    named = {i.name: v.numpy() for i, v in zip(graph.graph.input, (*inputs, mask), strict=True)}
    expected = Masked()(*inputs, mask).numpy()
    assert not expected[0, :, 1].any()
    np.testing.assert_allclose(answers(graph, **named)["y"], expected, atol=1e-5)
    assert operators(graph)["IsNaN"] == 0


@pytest.mark.parametrize(
    ("options", "plain"),
    [({}, True), ({"scale": 0.1}, True), ({"is_causal": True}, False)],
    ids=["plain", "with a scale", "causal"],
)
def test_answers_like_pytorch(options: dict[str, Any], plain: bool) -> None:
    generator = torch.Generator().manual_seed(0)
    inputs = tuple(torch.randn(BATCH, HEADS, COUNT, SIZE, generator=generator) for _ in range(3))
    module = Attention(options)
    graph = exported(module, inputs, patterns.attention_translations())
    got = answers(graph, **{n: v.numpy() for n, v in zip(("query", "key", "value"), inputs, strict=True)})
    np.testing.assert_allclose(got["y"], module(*inputs).numpy(), atol=1e-5)
    found = operators(graph)
    if plain:
        assert (found["MatMul"], found["Transpose"], found["Softmax"], found["Reshape"]) == (2, 1, 1, 0)
    else:  # the exporter's own translation
        assert found == operators(exported(module, inputs, None))
