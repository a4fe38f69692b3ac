"""Dynamic INT8: near the float graph, in the groups that are asked for."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import helper

from edgekit.onnxgraph import dynamic
from edgekit.quantization.calibration import Samples
from tests.onnxgraph.graphs import WIDTH, attended, noise


def test_dynamic_is_near_and_leaves_groups_in_float(graph: onnx.ModelProto, samples: Samples) -> None:
    assert 1e-4 < noise(graph, dynamic.quantize_dynamic(graph), **samples.inputs) < 0.06
    made = dynamic.quantize_dynamic(graph, ("blocks.0.mlp",))
    assert sum(n.op_type == "MatMulInteger" for n in made.graph.node) == 1
    assert not any(n.op_type in ("Gemm", "MatMul") for n in dynamic.quantize_dynamic(graph).graph.node)


def test_a_transposed_weight_is_quantized_dynamically() -> None:
    made = attended(biased=False)
    gemm = next(node for node in made.graph.node if node.op_type == "Gemm")
    gemm.attribute.extend(helper.make_attribute(name, value) for name, value in (("transA", 0), ("transB", 1)))
    drawn = np.random.default_rng(3).normal(0, 1, (8, 4, WIDTH)).astype(np.float32)
    shown = Samples({"x": drawn}, tuple(map(str, range(8))))
    result = dynamic.quantize_dynamic(made)
    assert sum(n.op_type == "MatMulInteger" for n in result.graph.node) == 2
    assert noise(made, result, **shown.inputs) < 0.06
