"""A model with an operator of its own, as people write them: ARR-COC's query-content score, fused."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from onnxscript import opset20, script
from onnxscript.values import Opset
from torch import Tensor, nn
from torch.nn import functional

from edgekit.model.spec import Axis, EvaluationSet, Input, ModelSpec, Output

op: Any = opset20  # its annotations know neither lists nor values
NAME = "edgekit_tests::fused_score"
SHARPNESS = 3.0


@torch.library.custom_op(NAME, mutates_args=())
def fused_score(patches: Tensor, query: Tensor, sharpness: float) -> Tensor:
    """How much each patch [B, N, D] answers a query [B, D]: a sigmoid of their cosine, [B, N]."""
    cosine = torch.einsum("bnd,bd->bn", functional.normalize(patches, dim=2), functional.normalize(query, dim=1))
    return torch.sigmoid(sharpness * cosine)


@fused_score.register_fake
def _shape(patches: Tensor, query: Tensor, sharpness: float) -> Tensor:
    return patches.new_empty(patches.shape[:2])


@script(Opset("edgekit_tests", 1), default_opset=op)
def compiled(patches, query, sharpness: float):  # type: ignore[no-untyped-def]  # onnxscript reads the types
    lengths = op.ReduceL2(patches, op.Constant(value_ints=[2]), keepdims=1)
    direction = op.Div(query, op.ReduceL2(query, op.Constant(value_ints=[1]), keepdims=1))
    cosine = op.MatMul(op.Div(patches, lengths), op.Unsqueeze(direction, op.Constant(value_ints=[2])))
    return op.Sigmoid(op.Mul(op.Squeeze(cosine, op.Constant(value_ints=[2])), op.Constant(value_float=sharpness)))


def written_out(patches: Tensor, query: Tensor, sharpness: float) -> Tensor:
    """The same by PyTorch's own operators."""
    direction = functional.normalize(query, dim=1).unsqueeze(2)
    return torch.sigmoid(sharpness * (functional.normalize(patches, dim=2) @ direction).squeeze(2))


class Scorer(nn.Module):
    """Patches and a query -> relevance."""

    def __init__(self) -> None:
        super().__init__()
        self.patches, self.query = nn.Linear(12, 16), nn.Linear(6, 16)

    def forward(self, patches: Tensor, query: Tensor) -> Tensor:
        scores: Tensor = fused_score(self.patches(patches), self.query(query), SHARPNESS)
        return scores


def real(count: int = 24, seed: int = 1) -> EvaluationSet:
    draw = np.random.Generator(np.random.PCG64(seed))
    inputs = {"patches": draw.random((count, 5, 12), np.float32), "query": draw.random((count, 6), np.float32)}
    return EvaluationSet(inputs, tuple(f"sample {row}" for row in range(count)))


def replaced_everywhere() -> ModelSpec:
    torch.manual_seed(0)
    return ModelSpec(
        name="own",
        module=Scorer().eval(),
        inputs=(Input("patches", ("batch", 5, 12)), Input("query", ("batch", 6))),
        outputs=(Output("relevance", role="scores"),),
        axes={"batch": Axis(1, 1, 8)},
        evaluation=real,
        calibration=lambda count: real(count, 2),
        translations={NAME: compiled},
        decompositions={NAME: written_out},
    )


def translated() -> ModelSpec:
    return replace(replaced_everywhere(), name="translated", decompositions={})


def decomposed() -> ModelSpec:
    return replace(replaced_everywhere(), name="decomposed", translations={})


def left_alone() -> ModelSpec:
    return replace(replaced_everywhere(), name="alone", translations={}, decompositions={})


def wrongly_translated() -> ModelSpec:
    def blunter(patches: object, query: object, sharpness: float) -> object:
        return compiled.function(patches, query, 0.9 * sharpness)

    return replace(replaced_everywhere(), name="blunter", translations={NAME: blunter})


def wrongly_decomposed() -> ModelSpec:
    def blunter(patches: Tensor, query: Tensor, sharpness: float) -> Tensor:
        return written_out(patches, query, 0.9 * sharpness)

    return replace(replaced_everywhere(), name="blunter", translations={}, decompositions={NAME: blunter})


def unregistered() -> ModelSpec:
    return replace(replaced_everywhere(), name="unregistered", translations={"edgekit_tests::gone": compiled})
