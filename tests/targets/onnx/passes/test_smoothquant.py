"""SmoothQuant: the same answers, and ranges that are easier to quantize."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from edgekit_targets.onnx.passes import qdq, smoothquant
from edgekit_targets.onnx.passes.groups import METHODS, ObservedRange, QuantConfig
from edgekit_targets.onnx.passes.smoothquant import scale_channels
from edgekit_targets.onnx.quantization import calibration
from edgekit_targets.onnx.quantization.calibration import Samples
from tests.targets.onnx.passes.graphs import WIDTH, attended, noise


def test_smoothing_alone_changes_nothing_but_the_ranges(
    graph: onnx.ModelProto, samples: Samples, observed: dict[str, ObservedRange]
) -> None:
    copy, divided = smoothquant.smooth(graph, 0.5, observed)
    assert set(divided) == {"normal"}
    assert noise(graph, copy, **samples.inputs) < 1e-5
    peaks = observed["normal"].peaks / divided["normal"]
    assert peaks.max() / peaks.min() < observed["normal"].peaks.max() / observed["normal"].peaks.min()


@pytest.mark.parametrize("biased", [False, True])
def test_layers_that_read_a_normalisation_in_two_shapes(biased: bool) -> None:
    graph = attended(biased=biased)
    drawn = np.random.default_rng(3).normal(0, 1, (96, 4, WIDTH)).astype(np.float32)
    shown = Samples({"x": drawn}, tuple(map(str, range(96))))
    seen = calibration.observe(graph, qdq.activations(graph), shown, METHODS, lambda done: None)
    copy, divided = smoothquant.smooth(graph, 0.5, seen)
    assert set(divided) == ({"rows", "normal"} if biased else {"rows"})
    assert noise(graph, copy, **shown.inputs) < 1e-5
    again = calibration.observe(copy, qdq.activations(copy), shown, METHODS, lambda done: None)
    plain, smoothed = (
        noise(graph, qdq.quantize_static(one, QuantConfig(), ranges), **shown.inputs)
        for one, ranges in ((graph, seen), (copy, again))
    )
    assert smoothed < plain < 0.06


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


def test_a_channel_that_no_calibration_row_moves_is_not_raised_above_all_others(
    graph: onnx.ModelProto, observed: dict[str, ObservedRange]
) -> None:
    """It moves in other rows, and would alone set the range of the tensor."""
    peaks = {name: np.array(one.peaks) for name, one in observed.items()}
    _, right = scale_channels(graph, 0.8, peaks, floats=("head",), without=frozenset(("normal",)))
    peaks["bent"][3] = 0.0
    _, divided = scale_channels(graph, 0.8, peaks, floats=("head",), without=frozenset(("normal",)))
    assert right["bent"][3] / divided["bent"][3] < 100
