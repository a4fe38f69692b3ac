"""ONNX files as models: the file's own fp32 run is the reference, and the other ONNX targets are made from its graph.

It has no PyTorch program, so targets that need one refuse it. If the first size of the inputs is open, it is the batch;
any other open size needs a range, which the file does not contain.

The minimum number of nodes that a graph runs is counted: a file of a few bytes can request more than any machine can
run. Nested functions double their nodes with each level, and a Loop runs as often as a constant in it says. A loop with
its own end condition counts once.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import hashlib
import itertools
import re
import shutil
import tempfile
import weakref
from collections import ChainMap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from edgekit.errors import CaptureError, ModelError, UsageError, reason
from edgekit.model.adapter import named_outputs, to_tensors
from edgekit.model.contract import check_spec
from edgekit.model.image_input import (
    COLOURS,
    TO_FIRST,
    TO_LAST,
    check_image,
    declares_preprocessing,
    normalization,
    plain,
)
from edgekit.model.onnx_check import LARGEST, bodies, check_onnx, every_node, rename
from edgekit.model.overrides import BATCH, NOTHING, Span, SpecOverrides, range_of, require_dimension, require_known
from edgekit.model.sources.checkpoint import slug
from edgekit.model.sources.onnx_session import Session, open_session
from edgekit.model.spec import Array, Axis, Input, ModelSpec, Output

if TYPE_CHECKING:
    import onnx
    import torch


FILE = "model.onnx"
RANDOM = (
    "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Bernoulli", "Multinomial", "Dropout",
)  # fmt: skip
QUANTIZING = ("QuantizeLinear", "DynamicQuantizeLinear", "DynamicQuantizeMatMul", "DynamicQuantizeLSTM")
"""Operators that round activations: a file with them is in INT8 already, as a module that PT2E converted."""
FROM_HERE = "onnx and what is made from it (its fp16, INT8 and buckets, openvino, mnn, iree and web)"


def open_file(path: str, words: SpecOverrides, task: str) -> ModelSpec:
    """Return the model of an ONNX file that a user named, as `spec_of_onnx`."""
    return spec_of_onnx(Path(path), words)


def spec_of_onnx(path: Path, words: SpecOverrides = NOTHING) -> ModelSpec:
    """Describe an ONNX file by its inputs, its outputs and the user's facts; it is named after the file.

    Raises:
        ModelError: If it cannot be read, or stores its weights elsewhere.
        UsageError: If an open size has no range, or a fact is about something that does not exist.
    """
    external = external_file(path)
    graph = read_graph(path, external)
    # A build holds the model as one file, so weights from a second file are written into a copy.
    rewritten = in_float32(graph) or bool(external)
    constants = {i.name for i in graph.graph.initializer}
    values = [value for value in graph.graph.input if value.name not in constants]
    ranges: dict[str, Axis] = {}
    axes = words.axes or {}
    names = tensor_names((*values, *graph.graph.output))
    own_names, answers = names[: len(values)], names[len(values) :]
    require_known(own_names, axes, "axes name the input")
    words.require_own_shapes()
    described = [_input(name, v, axes.get(name, {}), ranges) for name, v in zip(own_names, values, strict=True)]
    inputs = words.of_inputs(_with_range(i, graph.graph, v.name) for v, i in zip(values, described, strict=True))
    outputs = words.of_outputs(Output(n, dtype=_dtype(v)) for n, v in zip(answers, graph.graph.output, strict=True))
    name = slug(path.stem) or "model"
    named_inputs = [(v.name, i) for v, i in zip(values, inputs, strict=True)]
    module = _with_plain_inputs(path, graph, named_inputs, name, rewritten)
    inputs = tuple(map(plain, inputs))
    return check_spec(ModelSpec(name=name, module=module, inputs=inputs, outputs=outputs, axes=ranges, words=words))


def require_ranges(spec: ModelSpec) -> None:
    """Check that the range of a file's integers is known; a mask holds 0 and 1.

    Raises:
        UsageError: If neither the graph nor the user gives it: inputs of 0 and 1 alone would prove only these.
    """
    file, input_facts = file_of(spec.module), (spec.words or NOTHING).inputs
    integers = [i for i in spec.inputs if np.dtype(i.dtype).kind in "iu" and "mask" not in i.name.lower()]
    # A range set in a factory appears only in its inputs.
    declared = Input.low, Input.high
    unsaid = [i.name for i in integers if "low" not in input_facts.get(i.name, {}) and (i.low, i.high) == declared]
    if file is None or not unsaid:
        return
    graph = read_graph(file).graph
    constants = {i.name for i in graph.initializer}
    own = dict(
        zip((i.name for i in spec.inputs), (v.name for v in graph.input if v.name not in constants), strict=True)
    )
    if unknown := next((name for name in unsaid if range_of_integers(graph, own[name]) is None), None):
        raise UsageError(
            f"'{unknown}' holds integers without a known range. Add --inputs {unknown}:range=MIN..MAX, "
            f'in Python inputs={{"{unknown}": {{"range": "MIN..MAX"}}}}'
        )


def refuse_random(spec: ModelSpec) -> None:
    """Check that a file returns the same outputs twice; a module is checked at capture.

    Raises:
        ModelError: Naming the random operator.
    """
    if (file := file_of(spec.module)) is None:
        return
    draws = [n.op_type for n in every_node(read_graph(file).graph) if n.op_type in RANDOM]
    if not draws:
        return
    tensors = to_tensors(spec, spec.random(0))
    first, second = (named_outputs(spec, spec.module(*tensors)) for _ in range(2))
    differing = [name for name in first if not np.allclose(first[name], second[name], equal_nan=True)]
    if differing:
        raise ModelError(
            f"'{spec.name}' returns a different output '{differing[0]}' each time: it draws random numbers "
            f"({draws[0]}). Export it in eval mode, or make the noise an input"
        )


def refuse_closed_axes(spec: ModelSpec) -> None:
    """Check which axes of a file vary in truth, once it fails on a batch: a tracer may bake a size into an open axis.

    Raises:
        ModelError: Naming the axis, the size that the file takes, and how to declare it.
    """
    if file_of(spec.module) is None:
        return
    fixed = {d for i in spec.inputs for d in i.shape if isinstance(d, int)}
    sizes = {name: axis.default for name, axis in spec.axes.items()}
    for name, axis in spec.axes.items():
        ends = {axis.default, axis.minimum, axis.maximum}
        working = [n for n in sorted(ends | (fixed & set(axis.sizes))) if _runs(spec, {**sizes, name: n})]
        if len(working) == 1:
            (size,) = working
            declared, place = next((i.name, i.shape.index(name)) for i in spec.inputs if name in i.shape)
            raise ModelError(
                f"'{spec.name}' runs only at {name} {size}, though its axis '{name}' is open: a size was baked in when "
                f"it was exported. Declare the size with --axes {declared}:{place}={name}:{size}..{size}, or export "
                "the file again with this axis dynamic"
            )


def _runs(spec: ModelSpec, sizes: Mapping[str, int]) -> bool:
    # A session ends with the first batch that it refuses.
    module = copy.deepcopy(spec.module)
    try:
        module(*to_tensors(spec, spec.random(0, sizes)))
    except ModelError:
        return False
    return True


def _with_plain_inputs(
    path: Path, graph: onnx.ModelProto, named_inputs: list[tuple[str, Input]], model: str, rewritten: bool
) -> torch.nn.Module:
    """Return the file as a module; write it to a temporary folder if the graph is changed or preprocessing is added."""
    for _, i in named_inputs:
        check_image(i, model)
    if not (rewritten or any(declares_preprocessing(i) for _, i in named_inputs)):
        return module_of(path)
    place = _Place()
    write_with_preprocessing(graph, named_inputs, place.folder / FILE)
    return module_of(place.folder / FILE, place)


class _Place:
    """A temporary folder that is removed with the last module that uses it."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="edgekit-"))
        weakref.finalize(self, shutil.rmtree, self.folder, ignore_errors=True)


MOST_SIBLINGS = 100
"""Files next to an ONNX file that are tried as the one with its weights."""


def external_file(path: Path) -> str:
    """Return the name of the file next to an ONNX file that holds its weights. Empty if no file does."""
    with contextlib.suppress(ModelError):
        check_onnx(path)
        return ""
    siblings = [p.name for p in path.parent.iterdir() if p.is_file() and p != path] if path.is_file() else []
    # PyTorch calls it FILE.onnx.data; other tools choose any name, which the check compares with the recorded one.
    siblings.sort(key=lambda name: (not name.startswith(path.stem), name))
    for name in siblings[:MOST_SIBLINGS]:
        with contextlib.suppress(ModelError):
            check_onnx(path, name)
            return name
    return ""


def read_graph(path: Path, external: str = "") -> onnx.ModelProto:
    """Read the graph of a file, checked by its structure and by what it would run.

    Args:
        path: The file.
        external: Name of the file in the same folder that holds its weights, if any.

    Raises:
        ModelError: If it cannot be read, stores its weights in another file, or runs too many nodes.
    """
    import onnx

    check_onnx(path, external)
    try:
        if external and (path.parent / external).stat().st_size >= LARGEST:
            raise ValueError(f"'{external}' has 2 GiB or more, and a build holds one ONNX file")
        graph = onnx.load(path, load_external_data=bool(external))
    except Exception as error:
        raise ModelError(f"'{path}' is not an ONNX file ({reason(error)}). Export it again") from error
    check_work(graph)
    return graph


def tensor_name(name: str) -> str:
    """Return a tensor's name in a form that every target takes: a number or a path becomes a word."""
    word = re.sub(r"[^A-Za-z0-9_.]+", "_", name).strip("_.")
    return word if word[:1].isalpha() else f"tensor_{word}"


def tensor_names(values: Iterable[onnx.ValueInfoProto]) -> list[str]:
    """Return a distinct `tensor_name` for each value: `x:0` and `x/0` become `x_0` and `x_0_2`."""
    names: list[str] = []
    for value in values:
        name = tensor_name(value.name)
        choices = itertools.chain((name,), (f"{name}_{number}" for number in itertools.count(2)))
        names.append(next(choice for choice in choices if choice not in names))
    return names


def file_of(module: torch.nn.Module) -> Path | None:
    """Return the ONNX file that a module runs; None for a PyTorch module."""
    file = getattr(module, "onnx_file", None)
    return file if isinstance(file, Path) else None


def refuse(spec: ModelSpec) -> None:
    """Refuse an ONNX file if PyTorch code is needed.

    Raises:
        CaptureError: Naming the possible targets.
    """
    if file_of(spec.module) is not None:
        raise CaptureError(f"'{spec.name}' is an ONNX file without PyTorch code. Possible targets: {FROM_HERE}")


def module_of(path: Path, place: _Place | None = None) -> torch.nn.Module:
    """Return a module that runs in ONNX Runtime; its only buffer is the file's sha256, which identifies it.

    Args:
        path: The file.
        place: The file's temporary folder; None for a permanent file.
    """
    import torch

    class OnnxFile(torch.nn.Module):
        edgekit_adapter = True

        def __init__(self) -> None:
            super().__init__()
            self.onnx_file, self._place = path, place
            digest = bytearray(hashlib.sha256(path.read_bytes()).digest())
            self.register_buffer("sha256", torch.frombuffer(digest, dtype=torch.uint8).clone())
            self._session: Session | None = None

        @functools.cached_property
        def self_quantized(self) -> bool:
            return any(node.op_type in QUANTIZING for node in every_node(read_graph(path).graph))

        def forward(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
            if any(t.dtype is torch.float64 for t in tensors):
                raise TypeError("a float32 ONNX file does not run in float64")
            self._session = self._session or open_session(path, torch.get_num_threads())
            answers = self._session.run([tensor.detach().cpu().numpy() for tensor in tensors])
            return tuple(torch.from_numpy(answer) for answer in answers)

        def __deepcopy__(self, memo: object) -> torch.nn.Module:
            return module_of(path, place)

    return OnnxFile().eval()


def _input(
    name: str,
    value: onnx.ValueInfoProto,
    overrides: Mapping[int, tuple[str, Axis | Span | None]],
    ranges: dict[str, Axis],
) -> Input:
    shape: list[int | str] = []
    sizes = value.type.tensor_type.shape.dim
    for place in overrides:
        if (size := sizes[require_dimension(name, place, len(sizes))].dim_value) > 0:
            raise UsageError(f"axes name dimension {place} of '{name}', which the file fixes at {size}. Leave it out")
    for place, size in enumerate(sizes):
        # Some exporters write -1 or 0 for an open size.
        if size.dim_value > 0:
            shape.append(int(size.dim_value))
            continue
        if place not in overrides and place:
            axis = size.dim_param if size.dim_param.isidentifier() else usual_axis(place, len(sizes))
            raise UsageError(
                f"dimension {place} of the input '{name}' is open ('{size.dim_param or size.dim_value}') and has no "
                f"range. Add --axes {name}:{place}={axis}:MIN..MAX, in Python "
                f'axes={{"{name}": {{{place}: "{axis}:MIN..MAX"}}}}'
            )
        axis, span = overrides.get(place, (BATCH, None))
        ranges[axis] = range_of(axis, span, 0, ranges.get(axis))
        shape.append(axis)
    dtype = _dtype(value)
    # Several pictures at once, in a fixed number, are not one picture of a run.
    image = dtype == "float32" and len(shape) == 4 and shape[1] == COLOURS and shape[0] in (1, BATCH)
    return Input(name, tuple(shape), dtype=dtype, kind="image" if image else "tensor")


def usual_axis(place: int, rank: int) -> str:
    """Return the usual name of a dimension without a name in the file."""
    return {2: "height", 3: "width"}.get(place, f"size_{place}") if rank == 4 else f"size_{place}"


def _with_range(tensor_input: Input, graph: onnx.GraphProto, name: str) -> Input:
    """Return an input of integers with the range given by its readers."""
    span = range_of_integers(graph, name) if np.dtype(tensor_input.dtype).kind in "iu" else None
    return tensor_input if span is None else replace(tensor_input, low=float(span[0]), high=float(span[1]))


def _dtype(value: onnx.ValueInfoProto) -> str:
    import onnx
    from onnx import helper

    kind = value.type.tensor_type.elem_type
    if not kind:
        raise ModelError(f"'{value.name}' of the ONNX file is a sequence, a map or optional. Use tensors only")
    try:
        dtype = str(helper.tensor_dtype_to_np_dtype(kind))
    except KeyError as error:
        raise ModelError(f"'{value.name}' of the ONNX file has the unknown type {kind}. Export it again") from error
    if np.dtype(dtype).kind not in "biuf":
        kind_name = onnx.TensorProto.DataType.Name(kind).lower()
        raise ModelError(f"'{value.name}' of the ONNX file holds {kind_name}. Use tensors of numbers only")
    return dtype


MOST = 100_000_000
"""Largest number of nodes in one run: at a microsecond each these take minutes."""
# Graphs and functions in each other; a recursive function would never end.
DEEPEST = 100
ENDLESS = float("inf")
Known = ChainMap[str, int | bool | None]


def check_work(model: onnx.ModelProto) -> None:
    """Refuse a graph that would run forever.

    Raises:
        ModelError: If it runs more than `MOST` nodes, or nests more than `DEEPEST` graphs and functions.
    """
    functions = {(f.domain, f.name): f for f in model.functions}
    work = _Work(functions).of(model.graph.node, _visible_values(model.graph, ChainMap()))
    if work > MOST:
        raise ModelError(f"one run of the ONNX file has more than {MOST} nodes. Shorten its loops or functions")


@dataclass
class _Work:
    """The number of nodes that run, with each function counted once."""

    functions: Mapping[tuple[str, str], onnx.FunctionProto]
    counted: dict[tuple[str, str], float] = field(default_factory=dict)
    depth: int = 0

    def of(self, nodes: Sequence[onnx.NodeProto], constants: Known) -> float:
        """Return the count of a graph's or a function's nodes, with the constants visible to them."""
        if self.depth >= DEEPEST:
            raise ModelError(f"the ONNX file nests more than {DEEPEST} graphs or functions. Flatten it")
        self.depth += 1
        count = 0.0
        for node in nodes:
            count += 1 + self._inside(node, constants)
        self.depth -= 1
        return count

    def _inside(self, node: onnx.NodeProto, constants: Known) -> float:
        name = (node.domain, node.op_type)
        if name in self.functions and name not in self.counted:
            body = self.functions[name]
            self.counted[name] = self.of(body.node, _with_values(body.node, ChainMap()))
        count = self.counted.get(name, 0)
        for graph in bodies(node):
            loop = node.op_type == "Loop" and len(graph.input) > 1 and bool(graph.output)
            inside = _visible_values(graph, constants, graph.input[1].name if loop else "")
            count += self.of(graph.node, inside) * (
                _times(node, graph.output[0].name, constants, inside) if loop else 1
            )
        return count


def _times(node: onnx.NodeProto, result: str, outer: Known, inside: Known) -> float:
    """Return how often a Loop runs its body: once if its own condition can end it, or the count is unknown."""
    count, condition = [*node.input, "", ""][:2]
    if (condition and outer.get(condition) is not True) or inside.get(result) is not True:
        return 1
    times = outer.get(count)
    return ENDLESS if not count else max(times, 0) if times is not None else 1


def _visible_values(graph: onnx.GraphProto, outer: Known, holds: str = "") -> Known:
    """Return integers and truth values visible to a graph's nodes, by name; its own names hide outer ones.

    `holds` is the condition that a Loop passes to its body: if it is false, the body does not run again.
    """
    own: dict[str, int | bool | None] = dict.fromkeys(value.name for value in graph.input)
    own |= {tensor.name: _single(tensor) for tensor in graph.initializer}
    return _with_values(graph.node, outer.new_child(own | ({holds: True} if holds else {})))


def _with_values(nodes: Iterable[onnx.NodeProto], constants: Known) -> Known:
    """Add the values of constants and of copies of constants, and return the mapping."""
    for node in nodes:
        constants.update(dict.fromkeys(node.output))
        if node.op_type == "Identity" and node.input and node.output:
            constants[node.output[0]] = constants.get(node.input[0])
        for attribute in node.attribute if node.op_type == "Constant" and node.output else ():
            if attribute.name == "value":
                constants[node.output[0]] = _single(attribute.t)
            elif attribute.name == "value_int":
                constants[node.output[0]] = attribute.i
    return constants


def _single(tensor: onnx.TensorProto) -> int | bool | None:
    """Return the value of a tensor with one integer or boolean; None for any other."""
    from onnx import TensorProto, numpy_helper

    if tensor.data_type not in (TensorProto.INT64, TensorProto.BOOL) or any(size != 1 for size in tensor.dims):
        return None
    value = numpy_helper.to_array(tensor).reshape(-1)[0].item()
    return bool(value) if tensor.data_type == TensorProto.BOOL else int(value)


NAMES_A_DTYPE = ("to", "dtype", "output_dtype")
"""Attributes of operators that hold the number of a dtype."""


def in_float32(model: onnx.ModelProto) -> bool:
    """Convert a graph with float16 or float64 inputs or outputs to float32; return whether it was changed."""
    from onnx import TensorProto

    ports = {value.type.tensor_type.elem_type for value in (*model.graph.input, *model.graph.output)}
    if not (others := ports & {TensorProto.FLOAT16, TensorProto.DOUBLE}):
        return False
    graphs = [model.graph]
    nodes = [node for function in model.functions for node in function.node]
    values = [value for function in model.functions for value in function.value_info]
    while graphs or nodes:
        for node in nodes:
            for attribute in node.attribute:
                _of_tensors([*attribute.tensors, *([attribute.t] if attribute.HasField("t") else ())], others)
                if attribute.name in NAMES_A_DTYPE and attribute.i in others:
                    attribute.i = TensorProto.FLOAT
        graphs += [body for node in nodes for body in bodies(node)]
        nodes = []
        if graphs:
            graph = graphs.pop()
            nodes = list(graph.node)
            values += [*graph.input, *graph.output, *graph.value_info]
            _of_tensors(graph.initializer, others)
    for value in values:
        if value.type.tensor_type.elem_type in others:
            value.type.tensor_type.elem_type = TensorProto.FLOAT
    return True


def _of_tensors(tensors: Iterable[onnx.TensorProto], others: Iterable[int]) -> None:
    from onnx import numpy_helper

    for tensor in tensors:
        if tensor.data_type in others:
            tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor).astype(np.float32), tensor.name))


MOVES = frozenset(("Cast", "Flatten", "Identity", "Reshape", "Slice", "Squeeze", "Transpose", "Unsqueeze"))
"""Operators whose output holds the integers of their first input."""


def range_of_integers(graph: onnx.GraphProto, name: str) -> tuple[int, int] | None:
    """Return the smallest and the largest integer that all readers of an input take; None if no reader limits it."""
    nodes = [*every_node(graph)]
    constants = {tensor.name: [*tensor.dims] for tensor in graph.initializer}
    values: dict[str, Any] = {tensor.name: tensor for tensor in graph.initializer if len(tensor.raw_data) <= 8}
    for node in nodes:
        for value in (attribute.t for attribute in node.attribute if node.op_type == "Constant"):
            constants[node.output[0]], values[node.output[0]] = [*value.dims], value
    ranges = []
    waiting, seen = [name], {name}
    while waiting:
        value = waiting.pop()
        for node in nodes:
            if value not in node.input:
                continue
            if node.op_type in MOVES and node.input[0] == value and node.output[0] not in seen:
                seen.add(node.output[0])
                waiting.append(node.output[0])
            elif (rows := _rows(node, value, constants, values)) is not None:
                ranges.append(rows - 1)
    return (0, min(ranges)) if ranges else None


def _rows(node: onnx.NodeProto, value: str, shapes: dict[str, list[int]], values: dict[str, Any]) -> int | None:
    """Return the number of rows or classes that a node selects from by these integers."""
    from onnx import numpy_helper

    if len(node.input) < 2:
        return None
    axis = next((attribute.i for attribute in node.attribute if attribute.name == "axis"), 0)
    if node.op_type == "Gather" and node.input[1] == value and shapes.get(node.input[0]):
        return int(shapes[node.input[0]][axis])
    if node.op_type == "OneHot" and node.input[0] == value and node.input[1] in values:
        return int(np.ravel(numpy_helper.to_array(values[node.input[1]]))[0])
    return None


def write_with_preprocessing(graph: onnx.ModelProto, named_inputs: Iterable[tuple[str, Input]], path: Path) -> None:
    """Write the graph with the preprocessing of its image inputs in front.

    Args:
        graph: The file's graph; it is changed.
        named_inputs: The declared inputs, with their names in the graph.
        path: Destination.
    """
    for name, i in named_inputs:
        if declares_preprocessing(i):
            _prepend(graph.graph, name, i)
    path.write_bytes(graph.SerializeToString(deterministic=True))


def _prepend(graph: onnx.GraphProto, name: str, i: Input) -> None:
    from onnx import TensorProto

    inside = f"{name}_preprocessed"
    for node in graph.node:
        rename(node, {name: inside})
    for output in graph.output:
        if output.name == name:
            output.name = inside
    taken = plain(i)
    tensor = next(each for each in graph.input if each.name == name).type.tensor_type
    if i.layout != taken.layout:
        sizes = [copy.deepcopy(tensor.shape.dim[place]) for place in (TO_LAST if taken.layout == "NHWC" else TO_FIRST)]
        del tensor.shape.dim[:]
        tensor.shape.dim.extend(sizes)
    if i.dtype != taken.dtype:
        tensor.elem_type = TensorProto.UINT8
    nodes = list(_nodes(graph, name, inside, i))
    rest = list(graph.node)
    del graph.node[:]
    graph.node.extend([*nodes, *rest])


def _nodes(graph: onnx.GraphProto, name: str, inside: str, i: Input) -> Iterator[onnx.NodeProto]:
    from onnx import TensorProto, helper, numpy_helper

    def constant(what: str, values: Array | Sequence[int]) -> str:
        graph.initializer.append(numpy_helper.from_array(np.asarray(values), f"{name}_{what}"))
        return f"{name}_{what}"

    taken, values = plain(i), normalization(i)
    # Channels that are last for the caller and for the graph stay last.
    stays_last = i.layout == taken.layout == "NHWC"
    is_flat = bool(values) and values["mean"].ndim == COLOURS
    steps: list[tuple[str, list[str], dict[str, Any]]] = []
    if taken.layout == "NHWC" and not stays_last:
        steps.append(("Transpose", [], {"perm": TO_FIRST}))
    if i.channels == "BGR":
        order = constant("order", np.array((2, 1, 0), "int64"))
        steps.append(("Gather", [order], {"axis": 3 if stays_last else 1}))
    if i.dtype != taken.dtype:
        steps.append(("Cast", [], {"to": TensorProto.FLOAT}))
    if is_flat:
        shape = f"{inside}_shape"
        yield helper.make_node("Shape", [name], [f"{name}_sizes"])
        yield helper.make_node(
            "Gather", [f"{name}_sizes", constant("dimensions", np.array(TO_FIRST, "int64"))], [shape]
        )
        steps.append(("Reshape", [constant("rows", np.array((0, COLOURS, -1), "int64"))], {}))
    # Bytes are cast anyway, so arithmetic that changes nothing is left out.
    if values and (i.dtype == taken.dtype or values["mean"].any()):
        steps.append(("Sub", [constant("mean", values["mean"])], {}))
    if values and (i.dtype == taken.dtype or (values["std"] != 1).any()):
        steps.append(("Div", [constant("std", values["std"])], {}))
    if is_flat:
        steps.append(("Reshape", [shape], {}))
    if i.layout == "NHWC" and not stays_last:
        steps.append(("Transpose", [], {"perm": TO_LAST}))
    for number, (operator, constants, attributes) in enumerate(steps):
        input_name = name if number == 0 else f"{inside}_{number}"
        output_name = inside if number == len(steps) - 1 else f"{inside}_{number + 1}"
        yield helper.make_node(operator, [input_name, *constants], [output_name], **attributes)
