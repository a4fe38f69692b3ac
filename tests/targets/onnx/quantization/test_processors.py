"""What one INT8 file answers with and without VNNI; both are computed here, whatever this host's processor has."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
import torch
from onnx import helper

from edgekit.model.spec import Axis, Input, ModelSpec, Output
from edgekit_targets.onnx.quantization.calibration import Samples
from edgekit_targets.onnx.quantization.evaluator import NOISELESS, ProcessorComparison, Quality, compare_processors
from tests.targets.onnx.passes.graphs import linear_in_qdq, model

DEEP, WIDE = 8, 5


def in_float(weight: np.ndarray) -> onnx.ModelProto:
    """y = x w, exact for whole numbers, as in QDQ form whose scales are 1."""
    nodes = [helper.make_node("Gemm", ["x", "w"], ["y"], name="layer/Gemm")]
    return model(nodes, {"x": ["batch", DEEP]}, {"y": ["batch", WIDE]}, {"w": weight.astype(np.float32)})


def measured(largest: int) -> ProcessorComparison:
    draw = np.random.default_rng(0)
    weight = draw.integers(-largest, largest + 1, (DEEP, WIDE))
    weight[:2] = largest
    spec = ModelSpec(
        name="layer",
        module=torch.nn.Identity(),
        inputs=(Input("x", ("batch", DEEP), low=0.0, high=255.0),),
        outputs=(Output("y"),),
        axes={"batch": Axis(1, 1, 8)},
    )
    rows = draw.integers(200, 256, (12, DEEP)).astype(np.float32)
    samples = Samples({"x": rows}, tuple(map(str, range(12))))
    return compare_processors(spec, in_float(weight), linear_in_qdq(weight.astype(np.int8)), samples)


def test_weights_that_saturate_are_exact_with_vnni_and_noisy_without() -> None:
    found = measured(127)
    assert found.exact.snr_db == NOISELESS
    assert found.saturating.snr_db < 30
    assert not found.saturating.passed


def test_weights_of_seven_bits_answer_alike() -> None:
    found = measured(63)
    assert found.exact == found.saturating
    assert found.exact.snr_db == NOISELESS
    assert found.sentence("take 7 bits") == "on x86 without VNNI the noise is 0.0 dB higher than with it (emulated)"


@pytest.mark.parametrize(
    ("exact", "saturating", "advised"), [(True, False, True), (True, True, False), (False, False, False)]
)
def test_the_advice_is_given_where_only_the_other_processor_fails(exact: bool, saturating: bool, advised: bool) -> None:
    said = ProcessorComparison(Quality(exact, 32.5, {}), Quality(saturating, 20.0, {})).sentence("use --reduce-range")
    assert "12.5 dB higher" in said
    assert ("use --reduce-range" in said) == advised
