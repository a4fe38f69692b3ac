"""What a user gets wrong in a call of `edgekit.export` is one sentence, and nothing is written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import edgekit
import edgekit_arrcoc
from edgekit.errors import EdgekitError, ModelError, RecordError, UsageError
from edgekit.model.spec import Axis
from edgekit.testing import small_model


class Silent(torch.nn.Module):
    """Answers with nothing."""

    def forward(self, x: torch.Tensor) -> list[torch.Tensor]:
        return []


class Sparse(torch.nn.Module):
    """Keeps a table by its few values that are not 0."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("table", torch.eye(2).to_sparse())
        self.eval()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        mixed: torch.Tensor = torch.sparse.mm(self.table, x.T)
        return mixed.T


NET = torch.nn.Linear(2, 2).eval()
EXAMPLE = torch.ones(1, 2)
TINY_REFERENCE = Path(str(edgekit_arrcoc.__file__)).parent / "checkpoints" / "arr-coc-tiny" / "reference"


@pytest.mark.parametrize(
    ("given", "error", "sentence"),
    [
        (
            {"model": torch.nn.Linear(2, 2)},
            UsageError,
            r"'Linear' needs an example of its inputs: export\(net, example=\(x,\)\)$",
        ),
        ({"model": torch.nn.Linear(2, 2), "example": torch.ones(1, 2)}, ModelError, r"training mode. Call \.eval\(\)"),
        ({"model": torch.nn.Linear(2, 2).eval(), "example": torch.ones(1, 3)}, ModelError, "does not take the example"),
        (
            {"model": torch.nn.Linear(2, 2).double().eval(), "example": torch.ones(1, 2).double()},
            ModelError,
            "does not take the example, with its weights in float32, which every artifact uses: RuntimeError",
        ),
        (
            {"model": torch.nn.Linear(2, 2, device="meta").eval(), "example": torch.ones(1, 2)},
            ModelError,
            "'linear' has no values in 'weight', which is on the device 'meta'",
        ),
        ({"model": Sparse(), "example": torch.ones(1, 2)}, ModelError, r"'sparse' stores 'table' as torch\.sparse_coo"),
        (
            {"model": NET, "example": EXAMPLE, "inputs": {"input": "kind=image"}},
            ModelError,
            r"'input' of 'linear' has the shape \['batch', 2\]",
        ),
        (
            {"model": lambda: NET, "inputs": {"input": {"shape": (1, 10**14)}}},
            ModelError,
            "at most 1073741824 values",
        ),
        ({"model": lambda: NET, "inputs": {"input": "shape=-1,2"}}, ModelError, "at least 0"),
        ({"model": torch.nn.Linear(2, 2).eval(), "example": {"y": torch.ones(1, 2)}}, ModelError, "names 'y'"),
        ({"model": torch.nn.Linear(2, 2).eval(), "example": ("a",)}, ModelError, "'input' is str"),
        ({"model": "arr-coc-tyni"}, UsageError, "mean 'arr-coc-tiny'"),
        ({"model": lambda: 3}, ModelError, "returned int, not an edgekit"),
        ({"model": small_model, "targets": ["onxx"]}, UsageError, "mean 'onnx'"),
        (
            {"model": small_model, "targets": ["onnx"], "options": {"onnx": {"opset": 7}}},
            UsageError,
            r"option 'onnx.opset' cannot be 7\. Possible values: 17, 20, 21, 22, 23$",
        ),
        (
            {"model": small_model, "targets": ["onnx"], "options": {"onnx": {"opset": [21]}}},
            UsageError,
            r"cannot be \[21\]",
        ),
        (
            {"model": small_model, "targets": ["onnx"], "options": {"onxx": {"opset": 21}}},
            UsageError,
            "mean 'onnx'",
        ),
        (
            {"model": small_model, "targets": ["onnx"], "options": {"coreml": {"precision": "fp16"}}},
            UsageError,
            "'coreml', which is not selected. Selected: onnx",
        ),
        ({"model": small_model, "targets": ["onnx"], "options": ["onnx.opset=21"]}, UsageError, "given by target and"),
        ({"model": small_model, "targets": ["onnx"], "options": {"opset": 21}}, UsageError, "given by target and"),
        ({"model": small_model, "targets": [5]}, UsageError, "5 is not a name"),
        ({"model": None}, UsageError, "a NoneType is not a model"),
        ({"model": [1]}, UsageError, "a list is not a model"),
        ({"model": ""}, UsageError, "a model needs a name"),
        ({"model": torch.nn.Identity, "example": None}, UsageError, "'Identity' is a class"),
        ({"model": small_model, "example": torch.ones(1, 2)}, UsageError, "an example is only for a module"),
        ({"model": small_model, "axes": {"image": {0: "batch"}}}, UsageError, "'image'"),
        ({"model": "arr-coc-tiny", "axes": ["x:0=batch"]}, UsageError, "'arr-coc-tiny' describes its own"),
        ({"model": NET, "example": EXAMPLE, "inputs": ["input:shape=1,2"]}, UsageError, "already has a shape"),
        ({"model": Silent().eval(), "example": EXAMPLE}, ModelError, "'Silent' returns no tensor"),
        ({"model": NET, "example": 3}, ModelError, "the example must hold tensors, but 'input' is int"),
        ({"model": NET, "example": torch.ones(0, 2)}, ModelError, "the example's 'input' holds no value"),
        ({"model": NET, "example": torch.full((1, 2), torch.nan)}, ModelError, "the example's 'input' has a NaN"),
        ({"model": NET, "example": EXAMPLE, "axes": {"input": "batch"}}, UsageError, "axes of 'input' are 'batch'"),
        ({"model": NET, "example": EXAMPLE, "axes": ["batch"]}, UsageError, "axes 'batch' are not of the form"),
        ({"model": NET, "example": EXAMPLE, "axes": {"input": {0: ("b", 5)}}}, UsageError, "axes of 'input' are"),
        (
            {"model": NET, "example": EXAMPLE, "axes": {"input": {0: ("b", Axis(4, 4, 8))}}},
            ModelError,
            "axis 'b' goes from 4 to 8, but the example's 'input' has 1 there",
        ),
        (
            {"model": NET, "example": EXAMPLE, "axes": {"input": {0: ("b", Axis(1, 1, 8, 0))}}},
            ModelError,
            "axis 'b' of 'linear' goes from 1 to 8 in steps of 0",
        ),
        ({"model": NET, "example": EXAMPLE, "name": "../x"}, ModelError, r"'\.\./x' is not a valid model name"),
        ({"model": NET, "example": EXAMPLE, "name": ".."}, ModelError, r"'\.\.' is not a valid model name"),
        ({"model": NET, "example": EXAMPLE, "name": ""}, ModelError, "'' is not a valid model name"),
        ({"model": NET, "example": EXAMPLE, "evaluation": "photos"}, UsageError, "the evaluation set is a str"),
        ({"model": NET, "example": EXAMPLE, "calibration": 3}, UsageError, "the calibration set is a int"),
        (
            {"model": NET, "example": EXAMPLE, "calibration": lambda count: 3},
            ModelError,
            "the calibration set of 'linear' is a int",
        ),
        (
            {"model": NET, "example": EXAMPLE, "calibration": lambda: 1 / 0},
            ModelError,
            "the calibration set of 'linear' raised ZeroDivisionError",
        ),
        ({"model": NET, "example": EXAMPLE, "reference": "/gone"}, RecordError, "no usable reference in '/gone'"),
        (
            {"model": NET, "example": EXAMPLE, "reference": TINY_REFERENCE},
            RecordError,
            "belongs to other weights than those of 'linear'",
        ),
    ],
)
def test_what_cannot_be_exported_is_a_sentence(
    given: dict[str, Any], error: type[EdgekitError], sentence: str, tmp_path: Path
) -> None:
    with pytest.raises(error, match=sentence):
        edgekit.export(**given, output=tmp_path, progress="none")
    assert not list(tmp_path.iterdir())
