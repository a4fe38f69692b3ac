"""Translations of recurrent layers to ONNX: LSTM and GRU are onnxscript's, which has none for a plain RNN."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from edgekit.model import recurrent


def translations() -> dict[Any, Callable[..., Any]]:
    """Return the entries of recurrent layers in the `custom_translation_table` of `torch.onnx.export`."""
    from onnxscript.function_libs.torch_lib.ops import core

    functions: dict[str, Callable[..., Any]] = {"lstm": core.aten_lstm, "gru": core.aten_gru}
    for kind in ("tanh", "relu"):
        functions[f"rnn_{kind}"] = functools.partial(_rnn, kind.capitalize())
    return {own: functions[kind] for kind, (_, own) in recurrent.operators().items()}


def _rnn(
    activation: str,
    x: Any,
    hx: Any,
    params: Sequence[Any],
    has_biases: bool,
    num_layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
    batch_first: bool,
) -> tuple[Any, Any]:
    """Return the sequence of a plain RNN's last layer, and the last states of all layers [layers * directions, B, H].

    Args:
        activation: "Tanh" or "Relu".
        x: The sequence, [T, B, K] or [B, T, K].
        hx: The first states, [layers * directions, B, H].
        params: W [H, K], R [H, H] and, with biases, two vectors [H] of each layer and direction.
        has_biases: True if there are biases.
        num_layers: Number of layers.
        dropout: Ignored, as outside of training.
        train: Ignored: exported models are in evaluation mode.
        bidirectional: True for two directions.
        batch_first: True for [B, T, K].
    """
    from onnxscript import opset18

    op: Any = opset18
    directions, size = 2 if bidirectional else 1, 4 if has_biases else 2
    sequence, states = op.Transpose(x, perm=[1, 0, 2]) if batch_first else x, []
    for layer in range(num_layers):
        first = layer * directions
        parts = [params[size * d : size * (d + 1)] for d in range(first, first + directions)]
        inner, outer = (op.Concat(*[op.Unsqueeze(part[i], [0]) for part in parts], axis=0) for i in (0, 1))
        biases = [op.Unsqueeze(op.Concat(part[2], part[3], axis=0), [0]) for part in parts if has_biases]
        outputs, state = op.RNN(
            sequence,
            inner,
            outer,
            op.Concat(*biases, axis=0) if biases else None,
            None,
            op.Slice(hx, [first], [first + directions], [0]),
            activations=[activation] * directions,
            direction="bidirectional" if bidirectional else "forward",
            hidden_size=hx.shape[2],
        )
        # [T, directions, B, H] -> [T, B, directions * H]
        sequence = op.Reshape(op.Transpose(outputs, perm=[0, 2, 1, 3]), [0, 0, -1])
        states.append(state)
    last = op.Concat(*states, axis=0) if len(states) > 1 else states[0]
    return op.Transpose(sequence, perm=[1, 0, 2]) if batch_first else sequence, last
