"""A scale for each channel where no normalisation can take it."""

from __future__ import annotations

import numpy as np
import onnx

from edgekit.onnxgraph.quant_config import ObservedRange
from edgekit.onnxgraph.smoothquant import scale_channels
from edgekit.quantization.calibration import Samples
from tests.onnxgraph.graphs import noise


def test_the_graph_computes_the_same_with_channels_of_like_peaks(
    graph: onnx.ModelProto, samples: Samples, observed: dict[str, ObservedRange]
) -> None:
    peaks = {name: one.peaks for name, one in observed.items()}
    copy, divided = scale_channels(graph, 0.8, peaks, floats=("head",), without=frozenset(("normal",)))
    assert set(divided) == {"bent"}
    assert noise(graph, copy, **samples.inputs) < 1e-5
    before, after = peaks["bent"], peaks["bent"] / divided["bent"]
    used = before > 0
    assert after[used].max() / after[used].min() < before[used].max() / before[used].min()


def test_inputs_of_the_graph_stay_as_they_are() -> None:
    from onnx import TensorProto, helper, numpy_helper

    nodes = [
        helper.make_node("Transpose", ["x"], ["turned"], name="patch/Transpose", perm=[1, 0]),
        helper.make_node("MatMul", ["turned", "w"], ["y"], name="patch/MatMul"),
    ]
    weight = numpy_helper.from_array(np.eye(4, dtype=np.float32), "w")
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [4, 4]) for name in ("x", "y")]
    made = helper.make_model(helper.make_graph(nodes, "pixels", ends[:1], ends[1:], [weight]))
    scaled, divided = scale_channels(made, 0.8, {"turned": np.arange(1.0, 5.0)})
    assert divided == {}
    assert scaled == made
