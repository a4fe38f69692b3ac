"""Computations of an ONNX artifact, and their arithmetic, by operator and by layer.

The graph is run once at the default sizes, so that multiplications are counted on the real shapes. Linear and
recurrent layers, convolutions and products of two activations are counted. An operator between
DequantizeLinear nodes computes in INT8, as every runtime fuses them.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import TypeAdapter

from edgekit.artifact.store import read_artifact
from edgekit.errors import UsageError
from edgekit.hosts import process
from edgekit.model.records import recorded_weights
from edgekit.reference.batches import applicable_batches
from edgekit.reference.store import reference_of
from edgekit.runtime import ort
from edgekit.storage.files import write_text
from edgekit.storage.limits import limits_for
from edgekit_targets.onnx.passes.graph import PASSES

if TYPE_CHECKING:
    import onnx

    from edgekit.artifact.manifest import Manifest
    from edgekit.model.spec import Array

ENTRY = "model.onnx"
PROVIDERS = ("nnapi", "coreml")
"""Providers whose operators ONNX Runtime lists in its Python package."""
RECURRENT = frozenset(("LSTM", "GRU", "RNN", "DynamicQuantizeLSTM"))
PRODUCTS = RECURRENT | {"Conv", "ConvInteger", "ConvTranspose", "Gemm", "MatMul", "MatMulInteger", "MatMulNBits"}
INTEGER = frozenset(("ConvInteger", "MatMulInteger", "DynamicQuantizeLSTM"))
UNCOUNTED = frozenset(("Einsum", "Attention", "QLinearConv", "QLinearMatMul", "If", "Loop", "Scan"))
"""Operators that multiply, or contain some that do, and are not among the layers."""
QUANTIZED = "DequantizeLinear"
UNPACKING = (QUANTIZED, "Cast", "Mul", "Reshape")
"""Operators that make a stored weight float."""


@dataclass(frozen=True)
class Layer:
    """A node that multiplies, in the graph's order.

    Attributes:
        name: Its module and operator, as `texture.blocks.0.mlp.0/MatMul`.
        operator: Its type.
        arithmetic: "int8", or the type it computes in; "float32, int8 weights" if only its weights are stored in INT8.
        multiplications: For one input at the default sizes.
        weight_bytes: Bytes of its stored constants.
    """

    name: str
    operator: str
    arithmetic: str
    multiplications: int
    weight_bytes: int


@dataclass(frozen=True)
class Pass:
    """The changes made by one graph pass.

    Attributes:
        name: Its module and function in `edgekit_targets.onnx.passes`.
        made: Added operators, with their number.
        removed: Removed operators; if both are empty, it changed weights or names.
    """

    name: str
    made: Mapping[str, int]
    removed: Mapping[str, int]

    def cells(self) -> tuple[str, str, str]:
        """Return the pass as cells of a table."""
        counts, removed = (
            ", ".join(f"{count} {name}" for name, count in sorted(of.items(), key=lambda item: -item[1]))
            for of in (self.made, self.removed)
        )
        return self.name, counts or ("" if removed else "weights or names alone"), removed


@dataclass(frozen=True)
class Inspection:
    """The contents of a graph.

    Attributes:
        target: The artifact's target.
        precision: The manifest's precision.
        size: Bytes of its files.
        sizes: The sizes of the axes at which multiplications were counted.
        operators: Nodes by operator, the most frequent first.
        layers: Nodes that multiply.
        passes: The passes that made it from its source, in order.
    """

    target: str
    precision: str
    size: int
    sizes: Mapping[str, int]
    operators: Mapping[str, int]
    layers: tuple[Layer, ...]
    passes: tuple[Pass, ...] = ()

    @property
    def multiplications(self) -> int:
        """Multiplications of all layers."""
        return sum(layer.multiplications for layer in self.layers)

    @property
    def uncounted(self) -> dict[str, int]:
        """Nodes whose multiplications are not counted, by operator."""
        return {name: count for name, count in self.operators.items() if name in UNCOUNTED}

    def by_arithmetic(self) -> dict[tuple[str, str], tuple[int, int, int]]:
        """Return nodes, multiplications and bytes of weights by operator and arithmetic; the most work first."""
        totals: dict[tuple[str, str], tuple[int, int, int]] = {}
        for layer in self.layers:
            nodes, work, size = totals.get((layer.operator, layer.arithmetic), (0, 0, 0))
            totals[layer.operator, layer.arithmetic] = (
                nodes + 1,
                work + layer.multiplications,
                size + layer.weight_bytes,
            )
        return dict(sorted(totals.items(), key=lambda item: -item[1][1]))

    def largest(self, count: int) -> tuple[Layer, ...]:
        """Return the layers with the most multiplications."""
        return tuple(sorted(self.layers, key=lambda layer: -layer.multiplications)[:count])

    def as_record(self) -> dict[str, Any]:
        """Return the inspection as JSON values."""
        counted = {"multiplications": self.multiplications, "uncounted": self.uncounted}
        return {"schema_version": 1, **asdict(self), **counted}


def inspect(folder: Path) -> Inspection:
    """Inspect an ONNX artifact in its build.

    Raises:
        UsageError: If it is not an ONNX artifact.
        ArtifactError: If it is damaged.
    """
    manifest = onnx_artifact(folder)
    place = folder.resolve()
    answer = process.call(inspect_graph, {"build": str(place.parent), "target": place.name})
    passes = json.loads((folder / PASSES).read_bytes()) if (folder / PASSES).is_file() else ()
    common = {"target": manifest.target, "precision": manifest.precision, "size": manifest.size, "passes": passes}
    return TypeAdapter(Inspection).validate_python({**common, **answer})


def onnx_artifact(folder: Path) -> Manifest:
    """Return an ONNX artifact's manifest.

    Raises:
        UsageError: If it is not an ONNX artifact.
        ArtifactError: If it is damaged.
    """
    manifest = read_artifact(folder)
    if manifest.entry != ENTRY:
        raise UsageError(
            f"'{folder}' has the target '{manifest.target}'. Only graphs of ONNX artifacts can be inspected"
        )
    return manifest


def predict_provider(folder: Path, provider: str) -> dict[str, Any]:
    """Return ONNX Runtime's own prediction of how much of an artifact a provider runs; it verifies nothing.

    Args:
        folder: The artifact.
        provider: One of `PROVIDERS`.

    Returns:
        JSON values. `open` is the graph as it is, `fixed` the same graph with fixed sizes.

    Raises:
        UsageError: If it is not an ONNX artifact.
        ArtifactError: If it is damaged.
    """
    import onnxruntime

    manifest = onnx_artifact(folder)
    answer = process.call(
        predict_support, {"artifact": str(folder), "provider": provider}, limits=limits_for(manifest.size)
    )
    facts = {"target": manifest.target, "provider": provider, "onnxruntime": onnxruntime.__version__}
    return {"schema_version": 2, **facts, "verified": False, **answer}


def predict_support(artifact: str, provider: str, progress: process.Progress) -> dict[str, object]:
    """Ask ONNX Runtime's usability checker about a graph, in a worker."""
    import onnx
    from onnxruntime.tools.mobile_helpers import usability_checker as checker

    graph = onnx.shape_inference.infer_shapes(onnx.load(Path(artifact) / ENTRY))
    answer: dict[str, object] = {}
    for sizes, require_fixed in (("open", True), ("fixed", False)):
        if provider == "nnapi":
            info = checker.check_nnapi_partitions(graph, require_fixed)
        else:
            info = checker.check_coreml_partitions(graph, require_fixed, "coreml_supported_mlprogram_ops.md")
        answer[sizes] = {"nodes": info.num_supported_nodes, "partitions": info.num_partitions}
    # The operators do not depend on sizes, so those of the last call apply to both.
    operators = {"unsupported": sorted(info.unsupported_ops), "unchecked": info.supported_ops_checker.get_caveats()}
    return {"nodes": info.num_nodes, **answer, **operators}


def page(before: Inspection, after: Inspection) -> str:
    """Return a self-contained HTML page that compares two graphs of a model, by module and order of the layers."""
    from jinja2 import Environment, FileSystemLoader

    old_layers, right = _by_module(before.layers), _by_module(after.layers)
    kinds = {layer.arithmetic: (0, 0) for layer in (*before.layers, *after.layers)}
    for kind in kinds:
        work = [sum(layer.multiplications for layer in of.layers if layer.arithmetic == kind) for of in (before, after)]
        kinds[kind] = (work[0], work[1])
    operators = sorted({*before.operators, *after.operators})
    jinja = Environment(loader=FileSystemLoader(Path(__file__).parent), autoescape=True, trim_blocks=True)
    return jinja.get_template("inspect.html.jinja").render(
        before=before,
        after=after,
        at=", ".join(f"{axis} {size}" for axis, size in after.sizes.items()),
        kinds=kinds,
        operators=[(name, before.operators.get(name, 0), after.operators.get(name, 0)) for name in operators],
        layers=[(name, old_layers.get(name), right.get(name)) for name in dict.fromkeys((*old_layers, *right))],
    )


def _by_module(layers: Iterable[Layer]) -> dict[str, Layer]:
    """Return layers by module, numbered if it has several: a pass may rename a node, not its module."""
    by_module: dict[str, Layer] = {}
    count: Counter[str] = Counter()
    for layer in layers:
        module = layer.name.partition("/")[0]
        count[module] += 1
        by_module[module if count[module] == 1 else f"{module} ({count[module]})"] = layer
    return by_module


def write_page(before: Inspection, after: Inspection, path: Path) -> None:
    """Write `page` into a file.

    Raises:
        UsageError: If the file cannot be written.
    """
    try:
        write_text(path, page(before, after))
    except OSError as error:
        raise UsageError(f"cannot write '{path}' ({error.strerror}). Name a file in an existing folder") from error


def inspect_graph(build: str, target: str, progress: process.Progress) -> dict[str, object]:
    """Read and run the graph, in a worker; return sizes, nodes by operator, and the layers as dictionaries."""
    graph, row, sizes = recorded_row(Path(build), target)
    operators = dict(Counter(node.op_type for node in graph.graph.node).most_common())
    return {"sizes": sizes, "operators": operators, "layers": [asdict(layer) for layer in layers_of(graph, row)]}


def recorded_row(build: Path, target: str) -> tuple[onnx.ModelProto, dict[str, Array], dict[str, int]]:
    """Return an artifact's graph, one recorded input at the default sizes, and the sizes of its open axes."""
    import onnx

    graph, manifest = onnx.load(build / target / ENTRY), read_artifact(build / target)
    reference = reference_of(build / "reference", recorded_weights(build / "model"))
    row = next(iter(applicable_batches(reference.batches, manifest)[0].rows()))
    sizes = {
        str(axis): int(size)
        for tensor in manifest.inputs
        for axis, size in zip(tensor.shape, row[tensor.name].shape, strict=True)
        if isinstance(axis, str)
    }
    return graph, row, sizes


def layers_of(graph: onnx.ModelProto, row: Mapping[str, Array]) -> tuple[Layer, ...]:
    """Return the layers of a graph; `row` are inputs by name, at the sizes for counting multiplications."""
    makers = {name: node for node in graph.graph.node for name in node.output}
    stored = {tensor.name: tensor for tensor in graph.graph.initializer}
    nodes = [node for node in graph.graph.node if node.op_type in PRODUCTS]
    names = dict.fromkeys(name for node in nodes for name in (*node.input[: _arrays(node)], _output(node)))
    values = {
        **row,
        **ort.open_with_taps(graph, [name for name in names if name not in stored and name not in row]).run(row),
    }
    shapes = {name: tuple(tensor.dims) for name, tensor in stored.items()} | {
        name: v.shape for name, v in values.items()
    }
    return tuple(_layer(node, values[_output(node)], shapes, stored, makers) for node in nodes)


def _arrays(node: onnx.NodeProto) -> int:
    """Return how many of a node's first inputs are multiplied: a recurrent layer has two arrays of weights."""
    return 3 if node.op_type in RECURRENT else 2


def _output(node: onnx.NodeProto) -> str:
    """Return the first existing output: of a recurrent layer it may be the last state."""
    return next(str(name) for name in node.output if name)


def _layer(
    node: onnx.NodeProto,
    out: Array,
    shapes: Mapping[str, tuple[int, ...]],
    stored: Mapping[str, onnx.TensorProto],
    makers: Mapping[str, onnx.NodeProto],
) -> Layer:
    constants = [stored[name] for name in _constants(node, stored, makers)]
    left_shape, right, *more = (shapes[name] for name in node.input[: _arrays(node)])
    attributes = {attribute.name: attribute.i for attribute in node.attribute}
    # Each step of each sequence meets all weights of inputs and of states, once per gate.
    if node.op_type in RECURRENT:
        work = prod(left_shape[:-1]) * (prod(right) + prod(more[0]))
    # Each input meets its kernels: weights are [in, out, ...].
    elif node.op_type == "ConvTranspose":
        work = prod(left_shape) * prod(right[1:])
    elif node.op_type in ("Conv", "ConvInteger"):
        work = out.size * prod(right[1:])
    elif node.op_type == "Gemm" and attributes.get("transA"):
        work = out.size * left_shape[0]
    else:
        work = out.size * left_shape[-1]
    name = node.name or _output(node)
    size = sum(len(constant.raw_data) or prod(constant.dims) * 4 for constant in constants)
    return Layer(name, node.op_type, _arithmetic(node, out.dtype.name, makers, attributes, constants), work, size)


def _constants(
    node: onnx.NodeProto, stored: Mapping[str, onnx.TensorProto], makers: Mapping[str, onnx.NodeProto]
) -> Iterable[str]:
    """Yield the constants of a node, and those that it gets through operators of UNPACKING."""
    for name in dict.fromkeys(node.input):
        source = name
        while source in makers and makers[source].op_type in UNPACKING and stored.keys() >= {*makers[source].input[1:]}:
            source = makers[source].input[0]
        if source in stored:
            yield source


def _arithmetic(
    node: onnx.NodeProto,
    dtype: str,
    makers: Mapping[str, onnx.NodeProto],
    attributes: Mapping[str, int],
    constants: Iterable[onnx.TensorProto],
) -> str:
    if node.op_type in INTEGER:
        return "int8"
    if node.op_type == "MatMulNBits":
        return f"{dtype}, int{attributes.get('bits', 4)} weights"
    quantized = [name in makers and makers[name].op_type == QUANTIZED for name in node.input[:2]]
    if all(quantized):
        return "int8"
    return f"{dtype}, int8 weights" if any(constant.data_type == constant.INT8 for constant in constants) else dtype
