"""The published tables of what providers take, and whether a node is within one: operator, types, rank, restrictions.

Those of NNAPI and Core ML come with ONNX Runtime; those of XNNPACK and TensorRT are in `operators/`. A restriction is
checked where `RULES` knows it, word for word, and is remembered as unchecked where it does not.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from edgekit.errors import NotVerifiedHere, reason
from edgekit.model.onnx_bodies import bodies

if TYPE_CHECKING:
    import onnx


@dataclass(frozen=True)
class Table:
    """Where it is written what a provider takes.

    Attributes:
        said_by: In words; `{version}` is ONNX Runtime's.
        file: The table, in ONNX Runtime's package or beside this file.
        fixed: Whether it takes only nodes whose inputs have fixed sizes.
        rank: Of the largest tensors that it takes.
        types: Of the first input, where the table does not say; empty for all.
        opsets: The range that it reads.
        half: Whether it may compute fp32 graphs in fp16.
    """

    said_by: str
    file: str
    fixed: bool = False
    rank: int = 8
    types: frozenset[str] = frozenset()
    opsets: tuple[int, int] = (0, 99)
    half: bool = False


TABLES: Mapping[str, Table] = {
    # NNAPI's operands have four dimensions at most and no integers of 64 bits (NeuralNetworksTypes.h).
    "nnapi": Table(
        "the operator table of ONNX Runtime {version}",
        "nnapi_supported_ops.md",
        fixed=True,
        rank=4,
        types=frozenset(("FP32", "FP16", "INT32", "INT8", "UINT8", "BOOL")),
        half=True,
    ),
    "coreml": Table(
        "the operator table of ONNX Runtime {version}, with ModelFormat=MLProgram",
        "coreml_supported_mlprogram_ops.md",
        rank=5,  # as `check_coreml_partitions` has it
        half=True,
    ),
    "xnnpack": Table("ONNX Runtime's page of the XNNPACK provider", "xnnpack.md"),
    "tensorrt": Table("onnx-tensorrt's operator table of TensorRT 10.15", "tensorrt.md", opsets=(9, 24), half=True),
}


@dataclass
class Rules:
    """Whether a table takes a node; asked as ONNX Runtime's own checker of tables is.

    Attributes:
        graph: With the shapes and types that can be inferred.
        table: The table.
        rows: Types and restrictions by operator.
        values: Types and shapes by name.
        constants: Names of constants, and of those that DequantizeLinear gives.
        why: Why a node is left, by its first output.
        took: Operators of nodes that are taken.
        unchecked: Operators and restrictions that nothing here checks.
    """

    graph: onnx.GraphProto
    table: Table
    rows: Mapping[str, tuple[frozenset[str], tuple[str, ...]]]
    values: Mapping[str, onnx.TypeProto.Tensor]
    constants: Mapping[str, onnx.TensorProto | None]
    opset: int
    why: dict[str, str] = field(default_factory=dict)
    took: set[str] = field(default_factory=set)
    unchecked: set[tuple[str, str]] = field(default_factory=set)

    @classmethod
    def of(cls, model: onnx.ModelProto, table: Table) -> Rules:
        """For one graph."""
        import onnx

        known = onnx.shape_inference.infer_shapes(model, data_prop=True)
        opset = next((one.version for one in known.opset_import if one.domain in ("", "ai.onnx")), 0)
        values, constants = _facts(known.graph)
        return cls(known.graph, table, operators(place_of(table.file)), values, constants, opset)

    def is_op_supported(self, node: onnx.NodeProto) -> bool:
        """Whether the table takes the node; the name is the one that ONNX Runtime's estimate calls."""
        refused = self.refusal(node)
        if refused:
            self.why[key(node)] = refused
            return False
        self.took.add(node.op_type)
        return True

    def refusal(self, node: onnx.NodeProto) -> str:
        """Why the table leaves it; empty where it takes it."""
        first, last = self.table.opsets
        if not first <= self.opset <= last:
            return f"opset {self.opset} is not in {first} to {last}"
        name = f"{node.domain or 'ai.onnx'}:{node.op_type}".lower()
        if name not in self.rows:
            return "the operator is not in the table"
        types, notes = self.rows[name]
        types = types or self.table.types
        got = self.type_of(node.input[0]) if node.input else ""
        if types and got and got not in types:
            return f"{got} is not among its types"
        shapes = [self.shape_of(value) for value in node.input if value]
        if self.table.fixed and not all(shape is not None and None not in shape for shape in shapes):
            return "takes fixed sizes only"
        if (rank := max((len(shape) for shape in shapes if shape is not None), default=0)) > self.table.rank:
            return f"rank {rank} is more than {self.table.rank}"
        for note in notes:
            held = RULES[note](self, node) if note in RULES else None
            if held is None:
                self.unchecked.add((node.op_type, note))
            elif not held:
                return note.rstrip(".")
        return ""

    def type_of(self, name: str) -> str:
        """As tables write it; empty where it is not known."""
        import onnx

        known = self.values.get(name)
        if known is None:
            return ""
        return _TYPES.get(onnx.TensorProto.DataType.Name(known.elem_type), "another type")

    def shape_of(self, name: str) -> tuple[int | None, ...] | None:
        """None for an unknown rank, None in it for an open size."""
        known = self.values.get(name)
        if known is None or not known.HasField("shape"):
            return None
        return tuple(dim.dim_value if dim.HasField("dim_value") else None for dim in known.shape.dim)

    def rank(self, name: str) -> int | None:
        """None where it is not known."""
        shape = self.shape_of(name)
        return None if shape is None else len(shape)

    def constant(self, names: Sequence[str]) -> bool:
        """Whether all that are given are constants."""
        return all(name in self.constants for name in names if name)

    def zero(self, names: Sequence[str]) -> bool:
        """Whether all that are given are constants of zeros."""
        from onnx import numpy_helper

        given = [self.constants.get(name) for name in names if name]
        return all(one is not None and not numpy_helper.to_array(one).any() for one in given)


_TYPES = {
    "FLOAT": "FP32",
    "FLOAT16": "FP16",
    "BFLOAT16": "BF16",
    "DOUBLE": "FP64",
    **{name: name for name in ("INT64", "INT32", "INT16", "INT8", "INT4", "UINT16", "UINT8", "BOOL")},
}


def _facts(
    graph: onnx.GraphProto,
) -> tuple[dict[str, onnx.TypeProto.Tensor], dict[str, onnx.TensorProto | None]]:
    """Types and shapes of values, and constants, by name; those of branches and loops too."""
    import onnx

    values: dict[str, onnx.TypeProto.Tensor] = {}
    constants: dict[str, onnx.TensorProto | None] = {}
    for value in (*graph.input, *graph.output, *graph.value_info):
        values[value.name] = value.type.tensor_type
    for one in graph.initializer:
        constants[one.name] = one
        values[one.name] = onnx.helper.make_tensor_type_proto(one.data_type, one.dims).tensor_type
    for node in graph.node:
        if node.op_type == "Constant":
            constants[node.output[0]] = next((a.t for a in node.attribute if a.name == "value"), None)
        elif node.op_type == "DequantizeLinear" and node.input[0] in constants:
            constants[node.output[0]] = None
        for body in bodies(node):
            inner, kept = _facts(body)
            values |= inner
            constants |= kept
    return values, constants


def place_of(file: str) -> Path:
    """Where a table is: beside this file, or in ONNX Runtime's package."""
    import onnxruntime

    own = Path(__file__).parent / "operators" / file
    return own if own.is_file() else Path(onnxruntime.__file__).parent / "tools" / "mobile_helpers" / file


def operators(table: Path) -> dict[str, tuple[frozenset[str], tuple[str, ...]]]:
    """The types and restrictions of a Markdown table by operator, in small letters: the tables spell some in two ways.

    Raises:
        NotVerifiedHere: If it is not there, or has no rows.
    """
    found: dict[str, tuple[frozenset[str], tuple[str, ...]]] = {}
    try:
        lines = table.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise NotVerifiedHere(f"this ONNX Runtime has no operator table '{table.name}' ({reason(error)})") from error
    for line in lines:
        cells = [cell.strip() for cell in line.split("|")[1:-1]]
        if len(cells) >= 2 and (name := re.fullmatch(r"([a-z.]+)[:.]([A-Z]\w+)", cells[0])):
            types = frozenset(re.findall(r"\w+", cells[1])) if len(cells) > 2 else frozenset()
            notes = tuple(note for note in cells[-1].split("<br/>") if note)
            found[f"{name[1]}:{name[2]}".lower()] = (types, notes)
    if not found:
        raise NotVerifiedHere(f"the operator table '{table.name}' has no rows that can be read")
    return found


def _attribute(node: onnx.NodeProto, name: str, default: int | bytes) -> int | bytes:
    for one in node.attribute:
        if one.name == name:
            return bytes(one.s) if isinstance(default, bytes) else int(one.i)
    return default


def _ranks(*wanted: int, inputs: slice = slice(0, 1)) -> Rule:
    def held(rules: Rules, node: onnx.NodeProto) -> bool | None:
        ranks = [rules.rank(name) for name in node.input[inputs] if name]
        return None if None in ranks else all(rank in wanted for rank in ranks)

    return held


def _constants(inputs: slice) -> Rule:
    return lambda rules, node: rules.constant(node.input[inputs])


def _types(*wanted: str, inputs: slice) -> Rule:
    return lambda rules, node: all(rules.type_of(name) in ("", *wanted) for name in node.input[inputs] if name)


Rule = Callable[[Rules, "onnx.NodeProto"], "bool | None"]
"""Whether a restriction holds for a node; None where the graph does not tell."""
_SECOND, _REST, _BOTH = slice(1, 2), slice(1, None), slice(0, 2)
RULES: Mapping[str, Rule] = {
    "Only 2D Pool is supported.": _ranks(4),
    "Only 2D Pool is supported currently. 3D and 5D support can be added if needed.": _ranks(4),
    "Only 2D or 3D Pool is supported.": _ranks(4, 5),
    "Only 2D Conv is supported.": _ranks(4),
    "Only 2D ConvTranspose is supported.": _ranks(4),
    "Only 1D/2D Conv is supported.": _ranks(3, 4),
    "Only 2D Resize is supported.": _ranks(4),
    "The input must have rank 4.": _ranks(4),
    "4D input.": _ranks(4),
    "Only 2D Op is supported": _ranks(2, inputs=_BOTH),
    "A of rank 2 or 3, B of rank 2 and constant.": lambda rules, node: (
        rules.rank(node.input[0]) in (2, 3) and rules.rank(node.input[1]) == 2 and rules.constant(node.input[1:2])
    ),
    "Weights and bias should be constant.": _constants(_REST),
    "Weight and bias must be constant.": _constants(_REST),
    "Bias if provided must be constant.": _constants(slice(2, None)),
    "Input B should be constant.": _constants(_SECOND),
    "Input B must be constant.": _constants(_SECOND),
    "If input B is not constant, transB should be 1.": lambda rules, node: (
        rules.constant(node.input[1:2]) or _attribute(node, "transB", 0) == 1
    ),
    "Input indices should be constant if not int32 type.": lambda rules, node: (
        rules.constant(node.input[1:2]) or rules.type_of(node.input[1]) == "INT32"
    ),
    "Input axes should be constant.": _constants(_REST),
    "Input axis should be constant.": _constants(_REST),
    "Input depth should be constant.": _constants(_SECOND),
    "If provided, `splits` must be constant.": _constants(_REST),
    "Input pads and constant_value should be constant.": _constants(_REST),
    "starts/ends/axes/steps must be constant initializers.": _constants(_REST),
    "Only constant mode Pad is supported.": lambda _, node: _attribute(node, "mode", b"constant") == b"constant",
    "Only DCR mode DepthToSpace is supported.": lambda _, node: _attribute(node, "mode", b"DCR") == b"DCR",
    "Only supports cases when both inputs are fp32.": _types("FP32", inputs=_BOTH),
    "Both inputs must be bool.": _types("BOOL", inputs=_BOTH),
    "`X`/`Y` branches must be float or float16.": _types("FP32", "FP16", inputs=_REST),
    "The zero point must be 0.": lambda rules, node: rules.zero(node.input[2:]),
    "Only the first output is supported.": lambda _, node: not any(node.output[1:]),
    "Only the last axis.": lambda rules, node: (
        _attribute(node, "axis", -1) == -1 or _attribute(node, "axis", -1) == (rules.rank(node.input[0]) or 0) - 1
    ),
    "No dilations.": lambda _, node: all(d == 1 for one in node.attribute if one.name == "dilations" for d in one.ints),
    "sorted must be 1.": lambda _, node: _attribute(node, "sorted", 1) == 1,
    "No reduction.": lambda _, node: _attribute(node, "reduction", b"none") == b"none",
}
"""A restriction, as its table words it, to its check."""


def key(node: onnx.NodeProto) -> str:
    """A node's own name: that of its first output."""
    return next((name for name in node.output if name), node.name)
