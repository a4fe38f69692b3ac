"""Origin of an artifact's error, by the names of the user's PyTorch modules: where it is introduced or propagated.

The fp32 ONNX artifact and another one run on the same images. Noise is the root mean square of a tensor's difference,
relative to the tensor's own, for the noisiest output of a module. Each module of the artifact is run twice:

- on the outputs of the fp32 modules before it (`Pair`): that noise is introduced there, and amplifies nothing;
- in its place in the artifact: the rest of its output noise after subtracting the powers is propagated, since
  roundings are independent of each other (Widrow and Kollar, Quantization Noise, 2008, chapter 4).

SmoothQuant's factors, moved from a normalisation into weights, are moved back before tensors are compared. Two
rankings gather different rows, so the artifact gathers by the fp32 graph's ranking, and what follows is compared row by
row.

Modules of an fp32 graph are found by the names of its nodes, with the tensors that they read of others and others read
of them. A node belongs to the module that its name begins with. If a layer has another's name, as a convolution with a
folded batch norm does, it belongs to the module of its weight. A module with only constants left, such as a table of
positions that another module adds, outputs these.
"""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from pydantic import TypeAdapter

from edgekit.artifact.store import read_artifact
from edgekit.errors import ArtifactError, UsageError
from edgekit.hosts import process
from edgekit.model.onnx_check import names_read, rename
from edgekit.model.records import recorded_weights
from edgekit.model.spec import Array
from edgekit.reference.batches import applicable_batches
from edgekit.reference.store import reference_of
from edgekit.runtime import ort
from edgekit.storage.files import write_text
from edgekit_targets.onnx.passes.graph import LAYERS, copy_graph, set_nodes
from edgekit_targets.onnx.passes.groups import LINEAR

if TYPE_CHECKING:
    import onnx

IMAGES = 8
"""Number of images to run: noise is a mean over thousands of values, and hardly changes after that."""
SOURCE, ENTRY = "onnx", "model.onnx"
RENAMED = ("{}", "{}_fp16", "{}_dequantized")
"""Possible names of a tensor in the artifact; the first that exists in float counts."""
STORED = ("{}", "{}_quantized", "{}_int8")
"""Possible names of a weight in the artifact."""
RANKING = {"TopK": 1, "ArgMax": 0, "ArgMin": 0, "NonMaxSuppression": 0, "NonZero": 0}
"""Operators that select rows, with the position of their indices among their outputs."""
Row = Mapping[str, Array]
GIVEN = "{}/given"
LAYOUT = ("Reshape", "Transpose")
"""Operators that INT8 runs on bytes."""


@dataclass(frozen=True)
class Part:
    """A module, by its path as in `named_modules`; empty for the outermost `forward`.

    `noise_in` is that of its noisiest input, as a share of that tensor's root mean square; `noise_out` that of its
    noisiest output, or the share of differing values if that is not float; `introduced` is the output noise on the fp32
    graph's tensors.
    """

    module: str
    noise_in: float
    noise_out: float
    introduced: float

    @property
    def propagated_noise(self) -> float:
        """Noise that results from the noise of its inputs."""
        return math.sqrt(max(self.noise_out**2 - self.introduced**2, 0.0))

    @property
    def share(self) -> float:
        """Share of introduced noise in the power of its output noise."""
        return min(self.introduced / self.noise_out, 1.0) ** 2 if self.noise_out > 0 else 0.0


@dataclass(frozen=True)
class Attribution:
    """The modules in running order."""

    target: str
    images: int
    parts: tuple[Part, ...]

    def as_record(self) -> dict[str, object]:
        """Return the output of `--json`."""
        parts = [{**asdict(part), "carried": part.propagated_noise} for part in self.parts]
        return {"target": self.target, "images": self.images, "parts": parts}

    def worst(self, count: int) -> tuple[Part, ...]:
        """Return the modules that introduce most noise, most first."""
        return tuple(sorted(self.parts, key=lambda part: -part.introduced)[:count])


def explain(folder: Path, images: int = IMAGES) -> Attribution:
    """Attribute the error of an ONNX artifact in its build to modules, on so many evaluation images.

    Raises:
        UsageError: If it is not an ONNX artifact made from the fp32 one in the same build.
        ArtifactError: If either is damaged.
    """
    if images < 1:
        raise UsageError(f"cannot run {images} images. Give 1 or more")
    manifest = read_artifact(folder)
    build = folder.resolve().parent
    source = build / SOURCE
    if manifest.entry != ENTRY or manifest.target == SOURCE:
        raise UsageError(
            f"'{folder}' has the target '{manifest.target}'. Only fp16 and INT8 ONNX artifacts can be explained, "
            f"against '{SOURCE}' in the same build"
        )
    if manifest.export.source.sha256 != read_artifact(source).sha256:
        raise ArtifactError(f"'{folder}' was made from another fp32 artifact than '{source}'. Export again")
    answer = process.call(attribute_in_worker, {"build": str(build), "target": folder.resolve().name, "images": images})
    return TypeAdapter(Attribution).validate_python({"target": manifest.target, **answer})


def attribute_in_worker(build: str, target: str, images: int, progress: process.Progress) -> dict[str, object]:
    """Run both graphs, in a worker; return the number of images, and the parts as dictionaries."""
    import onnx

    root = Path(build)
    right, other = (onnx.load(root / name / ENTRY) for name in (SOURCE, target))
    reference = reference_of(root / "reference", recorded_weights(root / "model"))
    batch = applicable_batches(reference.batches, read_artifact(root / target))[0]
    rows = [row for row, _ in zip(batch.rows(), range(images), strict=False)]
    return {"images": len(rows), "parts": [asdict(part) for part in attribute(right, other, rows)]}


def attribute(right: onnx.ModelProto, other: onnx.ModelProto, rows: Sequence[Mapping[str, Array]]) -> tuple[Part, ...]:
    """Attribute the difference of two graphs of the same model on some inputs to its modules, in running order."""
    modules = modules_of(right)
    tensors = dict.fromkeys((*rankings(right), *(name for module in modules for name in module.gives)))
    whole, apart = Pair(right, other, tuple(tensors), rows[0]).compare(rows)
    parts = []
    for module in modules:
        introduced, out = apart.largest(module.gives), whole.largest(module.gives)
        if introduced is not None and out is not None:
            parts.append(Part(module.path, whole.largest(module.reads) or 0.0, out, introduced))
    return tuple(parts)


def write_attribution(attribution: Attribution, folder: Path) -> tuple[Path, Path]:
    """Write `explain-<target>.json` and `.svg` into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    data, plot = (folder / f"explain-{attribution.target}.{suffix}" for suffix in ("json", "svg"))
    write_text(data, json.dumps(attribution.as_record(), indent=2) + "\n")
    # One bar per module: its output noise, split into propagated and introduced power.
    from jinja2 import Environment, FileSystemLoader

    jinja = Environment(loader=FileSystemLoader(Path(__file__).parent), autoescape=True, trim_blocks=True)
    top = max((part.noise_out for part in attribution.parts), default=0.0) or 1.0
    svg = jinja.get_template("explain.svg.jinja").render(attribution=attribution, top=top) + "\n"
    write_text(plot, svg)
    return data, plot


@dataclass(frozen=True)
class Module:
    """A module, by its path as in `named_modules`; empty for the outermost `forward`.

    `reads` are tensors made by others; `gives` those that it makes and others read, or that are outputs of the graph.
    """

    path: str
    reads: tuple[str, ...]
    gives: tuple[str, ...]


def modules_of(graph: onnx.ModelProto) -> tuple[Module, ...]:
    """Return the modules of a graph with outputs, in running order; unnamed nodes belong to the outermost one."""
    nodes = graph.graph.node
    owners = _owners(graph)
    ends = [value.name for value in graph.graph.output]
    # Modules without a node own the constants that are named after them.
    paths = set(owners.values())
    homes = {i.name: i.name.rpartition(".")[0] for i in graph.graph.initializer}
    makers = {name: path for name, path in homes.items() if path and path not in paths}
    makers |= {name: owners[number] for number, node in enumerate(nodes) for name in node.output if name}
    order: dict[str, None] = {}
    reads: dict[str, dict[str, None]] = {}
    gives: dict[str, dict[str, None]] = {}
    for number, node in enumerate(nodes):
        own = owners[number]
        for name in names_read(node):
            maker = makers.get(name, own)
            if maker != own:
                order.setdefault(maker)
                reads.setdefault(own, {}).setdefault(name)
                gives.setdefault(maker, {}).setdefault(name)
        order.setdefault(own)
    for name in ends:
        if name in makers:
            gives.setdefault(makers[name], {}).setdefault(name)
    return tuple(Module(path, tuple(reads.get(path, ())), tuple(gives[path])) for path in order if path in gives)


def _owners(graph: onnx.ModelProto) -> dict[int, str]:
    """Return the module of each node, by the node's position."""
    nodes = graph.graph.node
    scopes = {number: node.name.rpartition("/")[0] for number, node in enumerate(nodes)}
    scope_names, constants = set(scopes.values()), {i.name for i in graph.graph.initializer}
    for number, node in enumerate(nodes):
        weight = node.input[1] if node.op_type in LAYERS and len(node.input) > 1 else ""
        path = weight.rpartition(".")[0]
        if weight in constants and path and path not in scope_names:
            scopes[number] = path
    return scopes


@dataclass
class Noise:
    """Sums of squares and of squared differences over images, by tensor.

    For a tensor that is not float ("i" in `kinds`): its size, and the number of differing values.
    """

    signal: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    error: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    kinds: dict[str, str] = field(default_factory=dict)

    def add(self, name: str, right: Array, other: Array) -> None:
        """Compare a tensor on one image, unless its shape differs.

        If the right value is not finite, as in masks, nothing is compared; if only the other is not, it counts as lost.
        """
        if right.shape != other.shape:
            return
        self.kinds[name] = "f" if right.dtype.kind == "f" else "i"
        if right.dtype.kind != "f":
            self.signal[name] += right.size
            self.error[name] += int((right != other).sum())
            return
        finite = np.isfinite(right)
        x, y = right[finite].astype(np.float64), other[finite].astype(np.float64)
        y = np.where(np.isfinite(y), y, 0.0)
        self.signal[name] += float((x * x).sum())
        self.error[name] += float(((x - y) ** 2).sum())

    def largest(self, names: Iterable[str]) -> float | None:
        """Return the noise of the noisiest tensor, of floats if there are any; None if none was compared."""
        candidates = [name for name in names if self.signal.get(name, 0.0) > 0]
        floats = [name for name in candidates if self.kinds[name] == "f"]
        if floats:
            return max(math.sqrt(self.error[name] / self.signal[name]) for name in floats)
        return max((self.error[name] / self.signal[name] for name in candidates), default=None)


@dataclass(frozen=True)
class _Tensor:
    """A tensor of both graphs: its name in each, and the artifact's divisor of its channels."""

    name: str
    called: str
    factor: Array | None

    def cast(self, values: Array) -> Array:
        """Return the fp32 graph's values in the artifact's scale."""
        return values if self.factor is None else values / self.factor

    def read(self, values: Array) -> Array:
        """Return the artifact's values in the fp32 graph's scale."""
        return values if self.factor is None else values * self.factor


class Pair:
    """Both graphs, ready to run, with their common tensors.

    `right` is the fp32 graph; `whole` the artifact's, which gets only the fp32 graph's rankings; `apart` the
    artifact's, cut at each of the tensors.
    """

    def __init__(self, right: onnx.ModelProto, other: onnx.ModelProto, names: Sequence[str], row: Row) -> None:
        other = layouts_in_float(other)
        self._constants = (_constants(right, names), _constants(other, names))
        produced, other_names = (
            {name for node in graph.graph.node for name in node.output} for graph in (right, other)
        )
        self.right = ort.open_with_taps(right, [name for name in names if name in produced])
        aliases = {c.format(name) for name in names for c in RENAMED}
        expected = {**self._constants[0], **self.right.run(row)}
        actual = {**self._constants[1], **ort.open_with_taps(other, sorted(aliases & other_names)).run(row)}
        factors = smoothing_factors(right, other)
        self.tensors: list[_Tensor] = []
        for name in names:
            called = (c.format(name) for c in RENAMED if c.format(name) in actual)
            alike = (c for c in called if (actual[c].dtype.kind == "f") == (expected[name].dtype.kind == "f"))
            if (first := next(alike, None)) is not None:
                self.tensors.append(_Tensor(name, first, factors.get(name)))
        every = {tensor.called: actual[tensor.called] for tensor in self.tensors}
        ranked = {tensor.called: actual[tensor.called] for tensor in self.tensors if tensor.name in rankings(right)}
        tapped = [called for called in every if called in other_names]
        self.whole, self.apart = cut(other, ranked, tapped), cut(other, every, tapped)

    def compare(self, rows: Iterable[Row]) -> tuple[Noise, Noise]:
        """Return the noise in the whole artifact, and with every module on the fp32 graph's tensors."""
        whole, apart = Noise(), Noise()
        for row in rows:
            expected = {**self._constants[0], **self.right.run(row)}
            inputs = {tensor.called: tensor.cast(expected[tensor.name]) for tensor in self.tensors}
            for noise, graph in ((whole, self.whole), (apart, self.apart)):
                got = {**self._constants[1], **graph.run(row, inputs)}
                for difference in self.tensors:
                    noise.add(difference.name, expected[difference.name], difference.read(got[difference.called]))
        return whole, apart


def rankings(graph: onnx.ModelProto) -> list[str]:
    """Return the tensors that select rows."""
    return [node.output[RANKING[node.op_type]] for node in graph.graph.node if node.op_type in RANKING]


def _constants(graph: onnx.ModelProto, names: Iterable[str]) -> dict[str, Array]:
    """Return the constants among some tensors."""
    from onnx import numpy_helper

    aliases = {c.format(name) for name in names for c in RENAMED}
    return {i.name: numpy_helper.to_array(i) for i in graph.graph.initializer if i.name in aliases}


def smoothing_factors(right: onnx.ModelProto, other: onnx.ModelProto) -> dict[str, Array]:
    """Return SmoothQuant's divisor of each normalisation's output, and of its reshaped twin, [K].

    A normalisation's scale / s and shift / s come with s W in the layers that read it (onnx/passes/smoothquant.py). The
    weights are rounded: of the quotients of scales and of shifts, the one that explains the weights better is taken. A
    scale that differs while the weights do not is an error of the normalisation.
    """
    originals, two = ({i.name: i for i in graph.graph.initializer} for graph in (right, other))
    factors: dict[str, Array] = {}
    for node in right.graph.node:
        if node.op_type == "LayerNormalization":
            constants = [(_values(originals, name), _values(two, name)) for name in node.input[1:]]
            quotients = [a / b for a, b in constants if a is not None and b is not None and a.all() and b.all()]
            weights = _weights(right, node.output[0], originals, two)
            if not quotients or weights is None:
                continue
            before, after = weights
            distances = [float(((after - before * factor[:, None]) ** 2).sum()) for factor in quotients]
            if min(distances) < float(((after - before) ** 2).sum()):
                factors[node.output[0]] = quotients[distances.index(min(distances))]
        elif node.op_type == "Reshape" and node.input[0] in factors:
            factors[node.output[0]] = factors[node.input[0]]
    return factors


def _weights(
    right: onnx.ModelProto,
    name: str,
    tensor_protos: Mapping[str, onnx.TensorProto],
    two: Mapping[str, onnx.TensorProto],
) -> tuple[Array, Array] | None:
    """Return the weights [K, N] of all linear layers that read a tensor, in the fp32 graph and in the artifact."""
    tensors, pairs = {name}, []
    for node in right.graph.node:
        if node.op_type == "Reshape" and node.input[0] in tensors:
            tensors.add(node.output[0])
        elif node.op_type in LINEAR and node.input[0] in tensors:
            before, after = _values(tensor_protos, node.input[1]), _values(two, node.input[1])
            if before is not None and after is not None and before.shape == after.shape and before.ndim == 2:
                # The graph's own Mul undoes these scales.
                scales = _values(two, f"{node.input[0]}_channel_scales")
                pairs.append((before, after if scales is None else after * scales[:, None]))
    if not pairs:
        return None
    before, after = (np.concatenate(each, axis=1) for each in zip(*pairs, strict=True))
    return before, after


def _values(weights: Mapping[str, onnx.TensorProto], name: str) -> Array | None:
    """Return a constant in float64, however it is stored; INT8 has a scale for each column, or for each row."""
    from onnx import numpy_helper

    stored = next((weights[c.format(name)] for c in STORED if c.format(name) in weights), None)
    if stored is None:
        return None
    values = numpy_helper.to_array(stored).astype(np.float64)
    scale = weights.get(f"{name}_scale") if stored.name != name else None
    if scale is None:
        return values
    scales = numpy_helper.to_array(scale).astype(np.float64)
    # weight_only.py stores a matrix with a scale for each input with one more axis, of size one.
    if values.ndim == scales.ndim == 3:
        return (values * scales).squeeze(values.shape.index(1))
    return values * scales if values.ndim == 2 else None


@dataclass(frozen=True)
class Cut:
    """A cut graph in ONNX Runtime, and the types of the tensors given at its cuts, by name."""

    runtime: ort.OrtRuntime
    dtypes: Mapping[str, np.dtype[Any]]

    def run(self, row: Mapping[str, Array], tensors: Mapping[str, Array]) -> dict[str, Array]:
        """Run one batch with the given tensors by name; values beyond a type's range become its largest."""
        fed = {GIVEN.format(name): _cast(tensors[name], kind) for name, kind in self.dtypes.items()}
        return self.runtime.run({**row, **fed})


def cut(graph: onnx.ModelProto, at: Mapping[str, Array], tapped: Iterable[str]) -> Cut:
    """Cut a graph at some tensors, given with example values; the original graph is not changed.

    The outputs are those of the graph and the tensors of `tapped`, which nodes make.

    A reader of one of the tensors reads the given values instead::

        x -> encoder -> a -> head -> y         cut at a:   x -> encoder -> a        a/given -> head -> y

    Each part then runs on the fp32 graph's own tensors, so that its error does not depend on earlier parts. A
    part is everything between two cuts: the nodes that a quantizer added need no module.
    """
    copy = copy_graph(graph)
    names = {name: GIVEN.format(name) for name in at}
    for node in copy.graph.node:
        rename(node, names)
    copy.graph.input.extend(_declare_input(GIVEN.format(name), values) for name, values in at.items())
    return Cut(ort.open_with_taps(copy, list(tapped)), {name: values.dtype for name, values in at.items()})


def layouts_in_float(graph: onnx.ModelProto) -> onnx.ModelProto:
    """Return a graph with Reshape and Transpose before rounding instead of after it; the original is not changed.

    `x -> QuantizeLinear -> Reshape -> DequantizeLinear` becomes `x -> Reshape -> QuantizeLinear -> DequantizeLinear`,
    which computes the same, and the output of Reshape is the tensor with that name in the fp32 graph.
    """
    from onnx import helper

    copy = copy_graph(graph)
    rounded: dict[str, onnx.NodeProto] = {}
    added: set[str] = set()
    source: dict[str, str] = {}
    nodes: list[onnx.NodeProto] = []
    for node in copy.graph.node:
        first = node.input[0] if node.input else ""
        if node.op_type == "QuantizeLinear":
            rounded[node.output[0]], source[node.output[0]] = node, first
        elif node.op_type in LAYOUT and first in rounded:
            node.input[0] = source[first]
            rounded[node.output[0]], source[node.output[0]] = rounded[first], node.output[0]
        elif node.op_type == "DequantizeLinear" and source.get(first) == first:
            name = f"{first}/rounded"
            if name not in added:
                added.add(name)
                nodes.append(helper.make_node("QuantizeLinear", [first, *rounded[first].input[1:]], [name], name=name))
            node.input[0] = name
        nodes.append(node)
    set_nodes(copy.graph, nodes)
    return copy


def _declare_input(name: str, values: Array) -> onnx.ValueInfoProto:
    """Return an input of any sizes, except that a list of integers keeps its length."""
    # Resize needs the length of a shape.
    from onnx import helper

    listed = values.ndim == 1 and values.dtype.kind == "i"
    shape = [len(values)] if listed else [None] * values.ndim
    return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(values.dtype), shape)


def _cast(values: Array, kind: np.dtype[Any]) -> Array:
    if kind.kind == "f" and values.dtype.itemsize > kind.itemsize:
        most = float(np.finfo(kind.name).max)
        values = np.clip(values, -most, most)
    return values.astype(kind)
