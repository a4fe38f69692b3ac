"""Recurrent layers over an open length and batch: captured, and exported to ONNX, as one operator each."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnxruntime as ort
import pytest
import torch
from torch import nn

from edgekit.model.graph import capture
from edgekit.model.spec import Axis, Input, ModelSpec, Output
from edgekit_targets.onnx import export as target

FORMS: dict[str, tuple[Any, dict[str, Any]]] = {
    "lstm": (nn.LSTM, {"num_layers": 2, "bidirectional": True}),
    "gru": (nn.GRU, {"batch_first": True}),
    "rnn": (nn.RNN, {"num_layers": 2, "bidirectional": True, "batch_first": True}),
    "rnn of relu": (nn.RNN, {"nonlinearity": "relu", "bias": False}),
}
SHAPES = ((1, 1), (9, 1), (57, 3))
"""Time steps and rows."""


class Net(nn.Module):
    """A recurrent layer with its states, and what follows it."""

    def __init__(self, cell: Any, **settings: Any) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer = cell(8, 6, **settings)
        self.head = nn.Linear(12 if settings.get("bidirectional") else 6, 2)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y, states = self.layer(x)
        return self.head(y), states[0] if isinstance(states, tuple) else states


def spec_of(form: str) -> ModelSpec:
    cell, settings = FORMS[form]
    axes = ("batch", "time") if settings.get("batch_first") else ("time", "batch")
    return ModelSpec(
        "net",
        Net(cell, **settings).eval(),
        (Input("x", (*axes, 8), low=-1.0),),
        (Output("y", axes=(*axes, "channels")), Output("states", axes=("layers", "batch", "channels"))),
        {"batch": Axis(1, 1, 4), "time": Axis(32, 1, 64)},
    )


@pytest.mark.parametrize("form", FORMS)
def test_a_recurrent_layer_takes_any_length_alone_and_in_batches(form: str) -> None:
    spec = spec_of(form)
    captured = capture(spec)
    graph = target._translate(spec, captured, 20)
    kinds = {node.op_type for node in graph.graph.node}
    assert kinds & {"LSTM", "GRU", "RNN"}
    assert not kinds & {"Loop", "Scan"}
    session = ort.InferenceSession(graph.SerializeToString())
    for time, rows in SHAPES:
        shape = (rows, time, 8) if spec.inputs[0].shape[0] == "batch" else (time, rows, 8)
        x = torch.randn(shape, generator=torch.Generator().manual_seed(time))
        with torch.no_grad():
            expected = spec.module(x)
        for one, other in zip(session.run(None, {"x": x.numpy()}), expected, strict=True):
            np.testing.assert_allclose(one, other, atol=1e-6)


def test_a_captured_program_holds_pytorchs_own_operators() -> None:
    """So that a program file is read by any PyTorch, without this package."""
    nodes = capture(spec_of("lstm")).exported.graph.nodes
    assert torch.ops.aten.lstm.input in {node.target for node in nodes}
