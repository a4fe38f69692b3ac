"""Conventions of graph passes, and the passes of every ONNX export: names, shared weights, folding.

A pass is a function of a graph (`onnx.ModelProto`) and its settings. It returns the new graph, and further results
second, without changing the original. A pass that follows values to their producers and readers is written on
onnx_ir, and declared with `on_ir`: it also takes the model made by PyTorch's exporter. A pass declared with
`graph_pass` or `on_ir` is named in `passes.json` next to the graph, with the operators that it added and removed. Its
name there is constant, whatever its function is called.
"""

from __future__ import annotations

import ast
import hashlib
import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Protocol, TypeVar, cast

from edgekit.errors import ExportError, reason
from edgekit.model.onnx_check import names_read
from edgekit.model.onnx_write import ALIGNED, LEAST, external, split, write_graph

if TYPE_CHECKING:
    import onnx
    import onnx_ir as ir

PASSES = "passes.json"
"""File next to a saved graph: for each pass in order `name`, `made` and `removed`, operators with their number."""
_HISTORY = "edgekit.passes"
P = ParamSpec("P")
R = TypeVar("R")
G = TypeVar("G", bound="onnx.ModelProto | ir.Model")
Graph = TypeVar("Graph", "onnx.ModelProto", "ir.Model")
SCOPES = "pkg.torch.onnx.name_scopes"
"""The exporter's note of the modules that contain a node, the outermost first, then the node itself."""
FOLDED = "pkg.onnxscript.optimizer.folded_from"
"""The optimizer's note of the values that a constant was computed from."""
LSTM = "LSTM"
RECURRENT = (LSTM, "GRU", "RNN")
CHANNEL = {"Conv": 0, "ConvTranspose": 1, "Gemm": 1, "MatMul": 1}
"""Axis of the output channels of the weight, which is the second input; a Gemm with transB has them first."""
LAYERS = frozenset((*CHANNEL, *RECURRENT))
"""Operators whose second input is a weight."""
_FX_NAMES = re.compile(r"[^\w.]+")
TOLERANCES = ("_rel_tol", "_abs_tol")
LARGEST_WEIGHT = 1 << 28
"""Largest number of elements of a constant that is folded: any weight of a model for the edge."""
LARGEST_SHAPE = 1 << 20
"""Largest number of elements of a folded constant: position embeddings of a large image, but no layer's weights."""


class Step(Protocol):
    """A function with which a formula of `unfold` adds its nodes."""

    def __call__(self, operator: str, *inputs: str, output: str = "") -> str:
        """Add a node and return its output's name, which is `output` or a new one."""


class IrPass(Protocol[P]):
    """A pass that takes either form of a graph."""

    def __call__(self, graph: Graph, /, *args: P.args, **kwargs: P.kwargs) -> Graph:
        """Rewrite a graph; an onnx_ir model is changed in place, since a copy would rename its values."""


def on_ir(name: str) -> Callable[[Callable[Concatenate[ir.Model, P], None]], IrPass[P]]:
    """Return a decorator that makes a named pass out of a function that changes an onnx_ir model."""

    def decorate(rewrite: Callable[Concatenate[ir.Model, P], None]) -> IrPass[P]:
        def apply(graph: Graph, /, *args: P.args, **kwargs: P.kwargs) -> Graph:
            import onnx_ir as ir

            if isinstance(graph, ir.Model):
                rewrite(graph, *args, **kwargs)
                return graph
            model = ir.from_proto(graph)
            rewrite(model, *args, **kwargs)
            return ir.to_proto(model)

        wrapped: Any = wraps(rewrite)(apply)
        return cast("IrPass[P]", graph_pass(name)(wrapped))

    return decorate


def graph_pass(name: str) -> Callable[[Callable[Concatenate[G, P], R]], Callable[Concatenate[G, P], R]]:
    """Return a decorator that records in the graph which operators a named pass added and removed.

    The changes of inner passes are recorded under their own names.
    """

    def decorate(rewrite: Callable[Concatenate[G, P], R]) -> Callable[Concatenate[G, P], R]:
        @wraps(rewrite)
        def apply(graph: G, /, *args: P.args, **kwargs: P.kwargs) -> R:
            before, history = _operators(graph), _history(graph)
            result = rewrite(graph, *args, **kwargs)
            rewritten: Any = result[0] if isinstance(result, tuple) else result
            inner = _history(rewritten)[len(history) :]
            change = _operators(rewritten)
            change.subtract(before)
            for entry in inner:
                change.subtract(entry["made"])
                change.update(entry["removed"])
            # An onnx_ir model is changed in place.
            if not any(change.values()) and (rewritten is graph or rewritten.graph == graph.graph):
                _set_history(rewritten, [*history, *inner])
                return result
            own = {"name": name, "made": dict(sorted((+change).items())), "removed": dict(sorted((-change).items()))}
            _set_history(rewritten, [*history, *inner, own])
            return result

        return apply

    return decorate


def _operators(graph: onnx.ModelProto | ir.Model) -> Counter[str]:
    import onnx

    return Counter(node.op_type for node in (graph.graph.node if isinstance(graph, onnx.ModelProto) else graph.graph))


def _history(graph: onnx.ModelProto | ir.Model) -> list[dict[str, Any]]:
    import onnx

    if isinstance(graph, onnx.ModelProto):
        text = next(
            (metadata_prop.value for metadata_prop in graph.metadata_props if metadata_prop.key == _HISTORY), "[]"
        )
    else:
        text = graph.metadata_props.get(_HISTORY, "[]")
    passes: list[dict[str, Any]] = json.loads(text)
    return passes


def _set_history(graph: onnx.ModelProto | ir.Model, passes: list[dict[str, Any]]) -> None:
    """Set the graph's history; an empty one removes it."""
    import onnx

    if not isinstance(graph, onnx.ModelProto):
        graph.metadata_props.pop(_HISTORY, None)
        graph.metadata_props.update({_HISTORY: json.dumps(passes)} if passes else {})
        return
    others = [metadata_prop for metadata_prop in graph.metadata_props if metadata_prop.key != _HISTORY]
    del graph.metadata_props[:]
    graph.metadata_props.extend(others)
    if passes:
        graph.metadata_props.add(key=_HISTORY, value=json.dumps(passes))


def unfold(
    graph: onnx.ModelProto,
    matches: Callable[[onnx.NodeProto], bool],
    formula: Callable[[Step, str, str], object],
    part: str,
    constants: Mapping[str, float],
) -> onnx.ModelProto:
    """Return a graph with the matching nodes of one input written as several; those in branches and loops stay.

    Args:
        graph: In fp32.
        matches: Selects the nodes.
        formula: Called with `step(operator, *inputs, output="")`, which adds a node and returns its output's name, with
            the matching node's input, and with its output, which the last step writes.
        part: Part of the names of the values between them: `<output>/<part>_<number>`.
        constants: Constants of the formula, by name; added to a graph that has a matching node.
    """
    import numpy as np
    from onnx import numpy_helper

    copy = copy_graph(graph)
    nodes: list[onnx.NodeProto] = []
    for node in copy.graph.node:
        nodes += _steps(node, formula, part) if matches(node) else [node]
    if len(nodes) > len(copy.graph.node):
        copy.graph.initializer.extend(
            numpy_helper.from_array(np.array(value, np.float32), name) for name, value in constants.items()
        )
    set_nodes(copy.graph, nodes)
    return copy


def _steps(node: onnx.NodeProto, formula: Callable[[Step, str, str], object], part: str) -> list[onnx.NodeProto]:
    from onnx import helper

    result = node.output[0]
    nodes: list[onnx.NodeProto] = []

    def step(operator: str, *inputs: str, output: str = "") -> str:
        name = output or f"{result}/{part}_{len(nodes)}"
        nodes.append(helper.make_node(operator, inputs, [name], name=f"{node.name or result}/{len(nodes)}"))
        return name

    formula(step, node.input[0], result)
    return nodes


def copy_graph(graph: onnx.ModelProto) -> onnx.ModelProto:
    """Return a copy of a graph, for a pass to change."""
    import onnx

    copy = onnx.ModelProto()
    copy.CopyFrom(graph)
    return copy


def readers(graph: onnx.ModelProto) -> dict[str, list[onnx.NodeProto]]:
    """Return the nodes that read each tensor, once for each time they read it."""
    nodes: dict[str, list[onnx.NodeProto]] = {}
    for node in graph.graph.node:
        for name in node.input:
            nodes.setdefault(name, []).append(node)
    return nodes


def set_nodes(graph: onnx.GraphProto, nodes: Iterable[onnx.NodeProto]) -> None:
    """Replace a graph's nodes."""
    listed = list(nodes)
    del graph.node[:]
    graph.node.extend(listed)


def set_weights(graph: onnx.GraphProto, weights: Iterable[onnx.TensorProto]) -> None:
    """Give a graph those of some weights that it reads."""
    read = {name for node in graph.node for name in names_read(node)} | {value.name for value in graph.output}
    weights_read = [weight for weight in weights if weight.name in read]
    del graph.initializer[:]
    graph.initializer.extend(weights_read)


def take_output(graph: ir.Graph, old: ir.Value, new: ir.Value) -> None:
    """Make `new` an output in place of `old`, under its name, if `old` is one."""
    for position, output in enumerate(graph.outputs):
        if output is old:
            new.name, old.name = old.name, None
            graph.outputs[position] = new


def strip_properties(graph: onnx.ModelProto) -> None:
    """Remove others' entries from a graph's properties."""
    passes = _history(graph)
    del graph.metadata_props[:]
    _set_history(graph, passes)


def save_graph(graph: onnx.ModelProto, path: Path) -> None:
    """Check a graph and write it, with its passes in a file next to it.

    Raises:
        ExportError: If it violates ONNX's rules.
    """
    import onnx

    try:
        onnx.checker.check_model(_without_weights(graph), full_check=True)
    except Exception as error:
        raise ExportError(f"the graph violates ONNX's rules: {reason(error)}") from error
    passes = _history(graph)
    _set_history(graph, [])
    graph.producer_name, graph.producer_version = "edgekit", ""
    write_graph(graph, path)
    (path.parent / PASSES).write_text(json.dumps(passes, indent=1) + "\n")


def _without_weights(graph: onnx.ModelProto) -> onnx.ModelProto:
    """Return a graph with inputs in place of its large weights: its rules, without copies of all its bytes.

    The number of a weight's bytes is checked when the file is opened (`edgekit.model.onnx_check`).
    """
    from onnx import helper

    lean, inner = split(graph)
    inputs = {value.name for value in inner.input}
    for weight in graph.graph.initializer:
        if len(weight.raw_data) < LEAST:
            inner.initializer.append(weight)
        elif weight.name not in inputs:
            inner.input.append(helper.make_tensor_value_info(weight.name, weight.data_type, weight.dims))
    lean.graph.MergeFrom(inner)
    return lean


def module_path(notes: Mapping[str, str]) -> str:
    """Return the module that contains a node, by the exporter's notes on it; empty in the outermost `forward`."""
    scopes = ast.literal_eval(notes.get(SCOPES, "[]"))
    path = next((scope for scope in reversed(scopes[:-1]) if scope and not scope.startswith("_")), "")
    return _FX_NAMES.sub("_", path)


@on_ir("constant_names.name_constants")
def name_constants(model: ir.Model) -> None:
    """Add the module's path to the name of each constant that is all of a module.

    This applies if the exporter computed everything that the module does::

        positions = Embedding(arange(12)) -> Add        becomes a constant `embedding_1`, and Add is the outer module's
        positions.embedding_1 -> Add                    with its name from this pass

    Modules with their own node, and weights of layers, are named by their nodes.
    """
    module_paths = {module_path(node.metadata_props) for node in model.graph}
    for name, value in tuple(model.graph.initializers.items()):
        folded = ast.literal_eval(value.metadata_props.get(FOLDED, "[]"))
        paths = {source.rpartition(".")[0] for source in folded} - module_paths - {""}
        layers = any(use.node.op_type in LAYERS for use in value.uses())
        if len(paths) == 1 and not layers and not value.is_graph_output():
            model.graph.initializers.pop(name)
            value.name = f"{paths.pop()}.{name}"
            model.graph.register_initializer(value)


class SharedWeights:
    """The bytes of all tensors moved so far.

        graph at 224x224 (13 MB), graph at 512x512 (13 MB) -> two graphs of 200 KB, weights.bin (13 MB)

    Args:
        name: Name of the file that will hold them.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.data = bytearray()
        self._places: dict[bytes, int] = {}

    def move(self, graph: onnx.ModelProto) -> None:
        """Move the constants of a graph, except the smallest."""
        from onnx import TensorProto, numpy_helper

        for tensor in graph.graph.initializer:
            if tensor.data_type == TensorProto.STRING:
                continue
            raw = tensor.raw_data or numpy_helper.to_array(tensor).tobytes()
            if len(raw) < LEAST:
                continue
            digest = hashlib.sha256(raw).digest()
            if digest not in self._places:
                self.data.extend(b"\0" * (-len(self.data) % ALIGNED))
                self._places[digest] = len(self.data)
                self.data.extend(raw)
            tensor.CopyFrom(external(tensor, self.name, self._places[digest], len(raw)))


@contextmanager
def exact() -> Iterator[None]:
    """Make onnxscript's rules take a constant for 0 or 1 only if it is exactly that.

        x + 0 -> x        x * 1 -> x        x + 1e-8, as an epsilon before a root or a division: stays

    onnxscript's rules compare constants with a tolerance (1e-8, and 1e-5 of the value), and so drop an epsilon as if it
    were zero: a division by zero where the module has none.
    """
    from onnxscript.rewriter._pattern_ir import Constant
    from onnxscript.rewriter.rules.common import _no_op

    # What the rules without effect compare with.
    values = (v for rule in _no_op.rules for node in rule._target_pattern for v in node.inputs)
    constants = [value for value in values if isinstance(value, Constant)]
    tolerances = [{name: getattr(constant, name) for name in TOLERANCES} for constant in constants]
    try:
        for constant in constants:
            constant._rel_tol = constant._abs_tol = 0.0
        yield
    finally:
        for constant, own in zip(constants, tolerances, strict=True):
            for name, value in own.items():
                setattr(constant, name, value)


@graph_pass("optimizer.folded")
def fold_constants(graph: onnx.ModelProto) -> onnx.ModelProto:
    """Return the graph with its recurrent layers' weights as constants; unchanged if it has no such layers.

    INT8 quantizers only find weights that are constants. PyTorch's exporter folds only small constants; a recurrent
    layer's gates, which ONNX orders differently, are larger:

        weight_ih [4H, K] -> Slice, Concat, Unsqueeze -> LSTM, W [1, 4H, K]
        W [1, 4H, K] constant -> LSTM
    """
    if not any(node.op_type in RECURRENT for node in graph.graph.node):
        return graph
    import onnx_ir as ir
    import onnx_ir.passes.common as passes
    from onnxscript import optimizer

    model = ir.from_proto(graph)
    optimizer.fold_constants(model, input_size_limit=LARGEST_WEIGHT, output_size_limit=LARGEST_WEIGHT)
    passes.RemoveUnusedNodesPass()(model)
    proto = ir.to_proto(model)
    # The quantizers would trust stale shapes.
    del proto.graph.value_info[:]
    return proto


@graph_pass("optimizer.fixed")
def fix_shapes(graph: onnx.ModelProto, shapes: Mapping[str, tuple[int, ...]]) -> onnx.ModelProto:
    """Return a graph with inputs of these shapes; its computations on shapes become constants.

    images [batch, 3, height, width] -> Shape, Gather, Mul, Reshape -> ...
    images [1, 3, 224, 320] -> Reshape by a constant -> ...
    """
    import onnx_ir as ir
    from onnxscript import optimizer

    copy = copy_graph(graph)
    del copy.graph.value_info[:]
    for value in copy.graph.input:
        for dimension, size in zip(value.type.tensor_type.shape.dim, shapes[value.name], strict=True):
            dimension.dim_value = size
    # They are inferred again from the inputs' shapes.
    for value in copy.graph.output:
        for dimension in value.type.tensor_type.shape.dim:
            if dimension.dim_param:
                dimension.Clear()
    model = ir.from_proto(copy)
    with exact():
        optimizer.optimize(model, input_size_limit=LARGEST_SHAPE, output_size_limit=LARGEST_SHAPE)
    proto = ir.to_proto(name_constants(model))
    del proto.graph.value_info[:]
    return proto
