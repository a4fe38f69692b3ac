"""What one INT8 file answers with and without VNNI; both are computed here, whatever this host's processor has."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
import torch
from onnx import helper

from edgekit.model.spec import Array, Axis, Input, ModelSpec, Output
from edgekit.quantization.calibration import Samples
from edgekit.quantization.evaluator import NOISELESS, ProcessorComparison, Quality, compare_processors
from tests.onnxgraph.graphs import model

DEEP, WIDE = 8, 5


def layer(weight: np.ndarray, quantized: bool) -> onnx.ModelProto:
    """y = x w, in float or in QDQ form whose scales are 1, so that both are exact for whole numbers."""
    nodes = [helper.make_node("Gemm", ["x", "w"], ["y"], name="layer/Gemm")]
    constants: dict[str, Array] = {"w": weight.astype(np.float32)}
    if quantized:
        nodes = [
            helper.make_node("QuantizeLinear", ["x", "one", "zero"], ["xq"]),
            helper.make_node("DequantizeLinear", ["xq", "one", "zero"], ["xd"]),
            helper.make_node("DequantizeLinear", ["w", "ones", "zeros"], ["wd"], axis=1),
            helper.make_node("Gemm", ["xd", "wd"], ["y"], name="layer/Gemm"),
        ]
        constants = {"w": weight.astype(np.int8), "one": np.array(1, np.float32), "zero": np.array(0, np.uint8)}
        constants |= {"ones": np.ones(WIDE, np.float32), "zeros": np.zeros(WIDE, np.int8)}
    return model(nodes, {"x": ["batch", DEEP]}, {"y": ["batch", WIDE]}, constants)


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
    return compare_processors(spec, layer(weight, quantized=False), layer(weight, quantized=True), samples)


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
