"""Small graphs by hand, and what ONNX Runtime answers to them."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

Shape = Sequence[int | str]
WIDTH = 64
"""Of the rows of `attended`, and of the graph in conftest.py."""


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


def linear_in_qdq(weight: np.ndarray) -> onnx.ModelProto:
    """y = x w in QDQ form whose scales are 1, so that its answers are the sums themselves; the weight is int8."""
    deep, wide = weight.shape
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "one", "zero"], ["xq"]),
        helper.make_node("DequantizeLinear", ["xq", "one", "zero"], ["xd"]),
        helper.make_node("DequantizeLinear", ["w", "ones", "zeros"], ["wd"], axis=1),
        helper.make_node("Gemm", ["xd", "wd"], ["y"], name="layer/Gemm"),
    ]
    held: dict[str, np.ndarray] = {"one": np.array(1, np.float32), "zero": np.array(0, np.uint8), "w": weight}
    held |= {"ones": np.ones(wide, np.float32), "zeros": np.zeros(wide, np.int8)}
    return model(nodes, {"x": ["batch", deep]}, {"y": ["batch", wide]}, held)


def recurrent(kind: str, gates: int) -> onnx.ModelProto:
    """Both directions of a layer of 64 inputs and units, whose states are inputs and outputs."""
    held = {n: rounded(2, gates * 64, 64, seed=seed, deviation=0.1) for seed, n in enumerate("wr")}
    layer = helper.make_node(
        kind, ["x", "w", "r", "", "", "h"], ["y", "last"], name="layer", hidden_size=64, direction="bidirectional"
    )
    shapes: dict[str, dict[str, Shape]] = {
        "inputs": {"x": (5, 1, 64), "h": (2, 1, 64)},
        "outputs": {"y": (5, 2, 1, 64), "last": (2, 1, 64)},
    }
    return model([layer], shapes["inputs"], shapes["outputs"], held)


def convolutions() -> onnx.ModelProto:
    """A convolution and a transposed one, both large enough to be stored in INT8."""
    held = {"w": rounded(48, 16, 3, 3), "u": rounded(48, 24, 2, 2)}
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], name="first/Conv"),
        helper.make_node("ConvTranspose", ["c", "u"], ["y"], name="second/ConvTranspose", strides=[2, 2]),
    ]
    return model(nodes, {"x": (1, 16, 8, 8)}, {"y": (1, 24, 12, 12)}, held)


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


def optimized(graph: onnx.ModelProto) -> Counter[str]:
    """How many nodes of each operator ONNX Runtime runs on the CPU, after its own rewrites."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    with tempfile.TemporaryDirectory() as folder:
        options.optimized_model_filepath = str(Path(folder) / "optimized.onnx")
        onnxruntime.InferenceSession(graph.SerializeToString(), options, providers=["CPUExecutionProvider"])
        return operators(onnx.load(options.optimized_model_filepath))


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


def noise(graph: onnx.ModelProto, other: onnx.ModelProto, **inputs: np.ndarray) -> float:
    """Root mean square of the difference of two graphs' first outputs, as a share of the first graph's."""
    right, got = (next(iter(answers(each, **inputs).values())) for each in (graph, other))
    return float(np.sqrt(((right - got) ** 2).mean() / (right**2).mean()))


def attended(*, biased: bool) -> onnx.ModelProto:
    """One normalisation of [batch, 4, WIDTH], read by two layers, its sizes read by a Shape, as exported.

    Args:
        biased: Whether only the first layer reads it flat, as where the second has no bias.
    """
    draw = np.random.default_rng(2)
    nodes = [
        helper.make_node("LayerNormalization", ["x", "scale", "shift"], ["normal"], name="norm/LayerNormalization"),
        helper.make_node("Reshape", ["normal", "flat"], ["rows"], name="norm/Reshape"),
        helper.make_node("Shape", ["normal"], ["sizes"], name="norm/Shape", start=0, end=2),
        helper.make_node("Concat", ["sizes", "width"], ["full"], name="norm/Concat", axis=0),
        helper.make_node("Gemm", ["rows", "wq", "b"], ["q"], name="q/Gemm"),
        helper.make_node("MatMul", ["normal" if biased else "rows", "wk"], ["k"], name="k/MatMul"),
        helper.make_node("Reshape", ["k", "flat"], ["kf"], name="k/Reshape"),
        helper.make_node("Add", ["q", "kf"], ["sum"], name="sum/Add"),
        helper.make_node("Reshape", ["sum", "full"], ["z"], name="z/Reshape"),
    ]
    held = {"scale": np.linspace(0.1, 8, WIDTH, dtype=np.float32), "flat": np.array([-1, WIDTH])}
    held |= {
        "shift": np.where(np.arange(WIDTH) % 9, 0, 20).astype(np.float32),
        "width": np.array([WIDTH]),
    }  # of one sign
    held |= {name: draw.normal(0, 0.2, (WIDTH, WIDTH)).astype(np.float32) for name in ("wq", "wk")}
    held["b"] = draw.normal(0, 1, WIDTH).astype(np.float32)
    return model(nodes, {"x": ["batch", 4, WIDTH]}, {"z": ["batch", "rows", "wide"]}, held)


def rewritten(graph: onnx.ModelProto, rewrite: Callable[[onnx.ModelProto], onnx.ModelProto]) -> onnx.ModelProto:
    """A graph after a pass that works on onnx-ir and needs the shapes of values, as the exporter gives them."""
    inferred = onnx.shape_inference.infer_shapes(graph, strict_mode=True, data_prop=True)
    made: onnx.ModelProto = rewrite(inferred)
    del made.graph.value_info[:]  # the target drops it too: it describes values of before
    return made
