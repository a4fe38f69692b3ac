from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import edgekit
from edgekit.model.spec import Axis, EvaluationSet, Input, ModelSpec, Output
from edgekit.target import Job, Runtime
from edgekit_targets.onnx.quantization.evaluator import Evaluator, Quality
from edgekit_targets.openvino import int8
from edgekit_targets.openvino.export import ENTRY, read_model
from tests.targets.damage_contract import OpenvinoContract

NAME = "openvino-int8"
WORDS, WIDTH, LENGTH = 4096, 64, 12


class TestOpenvinoInt8(OpenvinoContract):
    name = NAME


class Sentences(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.words = nn.Embedding(WORDS, WIDTH)
        self.head = nn.Linear(WIDTH, 8)

    def forward(self, ids: Tensor) -> Tensor:
        return torch.as_tensor(self.head(self.words(ids).mean(1)))


def sentences(count: int, seed: int) -> EvaluationSet:
    ids = np.random.default_rng(seed).integers(0, WORDS, (count, LENGTH))
    return EvaluationSet({"ids": ids}, tuple(f"sentence {number}" for number in range(count)))


def sentences_spec() -> ModelSpec:
    pytest.importorskip("nncf", reason="no nncf: pip install -e '.[nncf]'")
    return ModelSpec(
        name="sentences",
        module=Sentences().eval(),
        inputs=(Input("ids", ("batch", LENGTH), dtype="int64", low=0, high=WORDS - 1),),
        outputs=(Output("y"),),
        axes={"batch": Axis(1, 1, 3)},
        evaluation=lambda: sentences(16, 1),
        calibration=lambda count: sentences(count, 2),
    )


@pytest.mark.nightly
def test_a_table_of_words_is_stored_in_int8(tmp_path: Path) -> None:
    artifact = edgekit.export(sentences_spec(), targets=[NAME], output=tmp_path, progress="none")[NAME]
    assert artifact.status == "verified", artifact.sentences
    # A byte for each value of the table, and a scale for each row.
    assert (artifact.path / "model.bin").stat().st_size < WORDS * (WIDTH + 4) + 50_000


@pytest.mark.nightly
@pytest.mark.parametrize("loses", [False, True])
def test_ranges_lie_around_zero_unless_that_loses_too_much(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, loses: bool
) -> None:
    judge = Evaluator.judge_runtime
    found: list[Quality] = []

    def first_fails(evaluator: Evaluator, runtime: Runtime) -> Quality:
        found.append(judge(evaluator, runtime))
        return replace(found[-1], passed=not loses or len(found) > 1)

    monkeypatch.setattr(Evaluator, "judge_runtime", first_fails)
    build = edgekit.export(sentences_spec(), targets=["onnx"], output=tmp_path, progress="none")
    job = Job(model=build.path / "model", entry=build["onnx"].path / "model.onnx")
    int8.export(build.path / "model", tmp_path, job)
    model = read_model(tmp_path / ENTRY, "sentences")
    ranges = [
        [float(op.input_value(end).get_node().get_data().ravel()[0]) for end in (1, 2)]
        for op in model.get_ordered_ops()
        if op.get_type_name() == int8.ROUNDING
    ]
    assert ranges
    assert len(found) == 1 + loses
    assert all((abs(low + high) < 0.02 * high) is not loses for low, high in ranges), ranges


@pytest.mark.parametrize(("size", "groups", "expected"), [(2, 4, True), (3, 4, False), (2, 1, False)])
def test_a_depthwise_convolution_whose_kernel_is_larger_than_its_picture_stays_in_float(
    size: int, groups: int, expected: bool
) -> None:
    openvino = pytest.importorskip("openvino", reason="no openvino: pip install -e '.[openvino]'")
    from openvino import opset13 as operators

    picture = operators.parameter([-1, 4, size, size], np.float32)
    shape = (4, 1, 1, 3, 3) if groups > 1 else (4, 4, 3, 3)
    layer = operators.group_convolution if groups > 1 else operators.convolution
    kernel = operators.constant(np.ones(shape, np.float32))
    model = openvino.Model([layer(picture, kernel, [1, 1], [1, 1], [1, 1], [1, 1])], [picture])
    layers = [op for op in model.get_ordered_ops() if op.get_type_name() in int8.LAYERS]
    assert [int8._crashes(op) for op in layers] == [expected]
