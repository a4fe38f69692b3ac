"""Small graphs by hand, and what ONNX Runtime answers to them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

Shape = Sequence[int | str]


def model(
    nodes: Sequence[onnx.NodeProto],
    inputs: Mapping[str, Shape],
    outputs: Mapping[str, Shape],
    weights: Mapping[str, np.ndarray],
    types: Mapping[str, int] | None = None,
) -> onnx.ModelProto:
    """A graph of opset 20; inputs and outputs are fp32 where `types` says nothing."""

    def declared(values: Mapping[str, Shape]) -> list[onnx.ValueInfoProto]:
        kinds = types or {}
        return [helper.make_tensor_value_info(n, kinds.get(n, TensorProto.FLOAT), s) for n, s in values.items()]

    held = [numpy_helper.from_array(np.asarray(values), name) for name, values in weights.items()]
    graph = helper.make_graph(list(nodes), "toy", declared(inputs), declared(outputs), held)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)


def answers(graph: onnx.ModelProto, **inputs: np.ndarray) -> dict[str, np.ndarray]:
    """Check a graph and run it as it is, on one thread and without ONNX Runtime's own rewrites."""
    onnx.checker.check_model(graph, full_check=True)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(graph.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return dict(zip((o.name for o in session.get_outputs()), session.run(None, inputs), strict=True))


def operators(graph: onnx.ModelProto) -> Counter[str]:
    """How many nodes of each operator there are."""
    return Counter(node.op_type for node in graph.graph.node)


def weights(graph: onnx.ModelProto) -> dict[str, np.ndarray]:
    """The initializers by name."""
    return {i.name: numpy_helper.to_array(i) for i in graph.graph.initializer}


def types(graph: onnx.ModelProto) -> dict[str, int]:
    """Element type of each value that a node makes, by name."""
    inferred = onnx.shape_inference.infer_shapes(graph, strict_mode=True).graph
    return {v.name: v.type.tensor_type.elem_type for v in (*inferred.value_info, *inferred.input, *inferred.output)}


def rounded(*shape: int, seed: int = 0, deviation: float = 1.0) -> np.ndarray:
    """Normal numbers that fp16 holds exactly, float32."""
    return np.random.default_rng(seed).normal(0, deviation, shape).astype(np.float16).astype(np.float32)
