"""ONNX with fp16 weights and arithmetic; inputs and outputs stay fp32.

What holds weights goes to fp16. Reductions, roots, logarithms, squashing and top-K stay in fp32: they decide which
patches win, and cost nothing. Everything else follows its inputs, so that an island of fp32 is left only once. A
LayerNormalization stays one operator (taken apart in fp16 it overflows to a finite, wrong answer).

The pass is our own: onnxconverter-common's gives top-K an output type that ONNX Runtime refuses, and ONNX Runtime's own
converter names a cast twice where one value meets two nodes that stay in fp32.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from edgekit.artifact.store import read_artifact
from edgekit.errors import ExportError
from edgekit.judge.tolerance import FP16
from edgekit.onnxgraph import save
from edgekit.runtime.ort import OrtRuntime
from edgekit.runtime.protocol import Runtime
from edgekit.target import Exported, Job, Need, Target

if TYPE_CHECKING:
    import onnx

ENTRY = "model.onnx"
IN_FP32 = frozenset(
    (
        *("TopK", "Floor", "Resize", "Range", "CumSum", "Cast", "ConstantOfShape", "RandomNormal", "RandomUniform"),
        *("ReduceMean", "ReduceMax", "ReduceMin", "ReduceSum", "ReduceSumSquare", "ReduceL2", "ReduceLogSumExp"),
        *("Exp", "Log", "LogSoftmax", "Sqrt", "Pow", "Reciprocal", "Sigmoid"),
    )
)
IN_FP16 = frozenset(("MatMul", "Gemm", "Conv", "ConvTranspose", "Einsum", "LayerNormalization", "BatchNormalization"))
LARGEST = float(np.finfo(np.float16).max)


def export(source: Path, out: Path, job: Job) -> Exported:
    """ONNX artifact -> model.onnx in fp16."""
    import onnx

    graph = onnx.load(source / ENTRY)
    job.progress(0.3, "converting to fp16")
    rounded = _Conversion(graph).run()
    job.progress(0.8, "checking the graph")
    save.save(graph, out / ENTRY)
    axes = read_artifact(source, check=False).axes
    notes = (f"{rounded} weights lie beyond fp16's range and were clamped to it",) if rounded else ()
    return Exported(precision="fp16", entry=ENTRY, dynamic=tuple(n for n, a in axes.items() if a.dynamic), notes=notes)


def load(artifact: Path, place: str) -> Runtime:
    """Run it in ONNX Runtime, which computes fp16 nodes without a kernel in fp32."""
    return OrtRuntime(artifact / ENTRY)


@dataclass
class _Conversion:
    """One graph on its way to fp16: every node runs in one precision, and values are cast where they cross.

    Attributes:
        model: Changed in place.
        floats: Names of the values that are fp32 before.
        home: Precision in which a value exists under its own name.
        crossed: Name of a value in the other precision, where it is needed.
    """

    model: onnx.ModelProto
    floats: set[str] = field(default_factory=set)
    home: dict[str, int] = field(default_factory=dict)
    crossed: dict[tuple[str, int], str] = field(default_factory=dict)

    def run(self) -> int:
        """Convert; returns how many weights were clamped."""
        from onnx import TensorProto

        graph = self.model.graph
        self._find_floats()
        nodes: list[onnx.NodeProto] = []
        outputs = {value.name for value in graph.output}
        for node in graph.node:
            half = self._half(node)
            precision = TensorProto.FLOAT16 if half else TensorProto.FLOAT
            for position, name in enumerate(node.input):
                if name in self.floats:
                    nodes += self._cross(name, precision)
                    node.input[position] = self.crossed.get((name, precision), name)
            nodes.append(node)
            for position, name in enumerate(node.output):
                if name in self.floats:
                    self.home[name] = precision
                    if half and name in outputs:
                        node.output[position] = f"{name}_fp16"
                        nodes.append(_cast(f"{name}_fp16", name, TensorProto.FLOAT))
                        self.crossed[name, TensorProto.FLOAT16] = f"{name}_fp16"
                        self.home[name] = TensorProto.FLOAT
        del graph.node[:]
        graph.node.extend(nodes)
        return self._convert_weights()

    def _half(self, node: onnx.NodeProto) -> bool:
        from onnx import TensorProto

        follows = any(self.home.get(name) == TensorProto.FLOAT16 for name in node.input)
        return node.op_type in IN_FP16 or (follows and node.op_type not in IN_FP32)

    def _find_floats(self) -> None:
        import onnx
        from onnx import AttributeProto, TensorProto

        for node in self.model.graph.node:
            if any(a.type in (AttributeProto.GRAPH, AttributeProto.GRAPHS) for a in node.attribute):
                raise ExportError(f"the graph has control flow ('{node.op_type}'), which fp16 conversion does not take")
        _lift_constants(self.model.graph)
        inferred = onnx.shape_inference.infer_shapes(self.model, strict_mode=True).graph
        values = (*inferred.value_info, *inferred.input, *inferred.output)
        self.floats = {v.name for v in values if v.type.tensor_type.elem_type == TensorProto.FLOAT}
        self.floats |= {i.name for i in inferred.initializer if i.data_type == TensorProto.FLOAT}
        self.home = dict.fromkeys((v.name for v in inferred.input), TensorProto.FLOAT)

    def _cross(self, name: str, precision: int) -> Iterator[onnx.NodeProto]:
        """See that a value exists in a precision: a second weight, or a cast where it is first needed."""
        if name not in self.home:  # a weight: decided by who needs it, converted at the end
            self.crossed[name, precision] = f"{name}{'' if precision == 1 else '_fp16'}"
        elif self.home[name] != precision and (name, precision) not in self.crossed:
            self.crossed[name, precision] = f"{name}_fp{16 if precision == 10 else 32}"
            yield _cast(name, self.crossed[name, precision], precision)

    def _convert_weights(self) -> int:
        from onnx import TensorProto, numpy_helper

        graph, clamped = self.model.graph, 0
        weights = list(graph.initializer)
        del graph.initializer[:]
        for weight in weights:
            if (weight.name, TensorProto.FLOAT16) in self.crossed and weight.name not in self.home:
                values = numpy_helper.to_array(weight)
                clamped += int((np.abs(values) > LARGEST).sum())
                half = np.clip(values, -LARGEST, LARGEST).astype(np.float16)
                graph.initializer.append(numpy_helper.from_array(half, f"{weight.name}_fp16"))
            if weight.data_type != TensorProto.FLOAT or (weight.name, TensorProto.FLOAT) in self.crossed:
                graph.initializer.append(weight)
        return clamped


def _lift_constants(graph: onnx.GraphProto) -> None:
    """Constant nodes -> initializers, so that they are converted like weights."""
    kept = []
    for node in graph.node:
        value = next((a.t for a in node.attribute if a.name == "value"), None)
        if node.op_type == "Constant" and value is not None:
            value.name = node.output[0]
            graph.initializer.append(value)
        else:
            kept.append(node)
    del graph.node[:]
    graph.node.extend(kept)


def _cast(source: str, result: str, precision: int) -> onnx.NodeProto:
    from onnx import helper

    return helper.make_node("Cast", [source], [result], name=f"{result}/Cast", to=precision)


TARGET = Target(
    summary="ONNX, fp16 weights, fp32 inputs and outputs",
    source="onnx",
    export=export,
    load=load,
    tolerance={"": FP16},
    needs=(Need("onnxruntime", "cpu"),),
    groups=("onnx-all",),
)
