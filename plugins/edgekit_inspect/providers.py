"""Which nodes of an ONNX artifact a provider of ONNX Runtime, or TensorRT, would take, at open and at fixed sizes.

NNAPI, Core ML, XNNPACK and TensorRT are not here: published tables say which operators they take (`operator_rules.py`),
and `onnxruntime.tools.mobile_helpers` how many partitions that makes. For x86-64 QNN's package has the compiler of
Qualcomm's NPU: it is asked.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from pydantic import TypeAdapter

from edgekit.errors import DependencyError
from edgekit.hosts import process
from edgekit.model.onnx_bodies import every_node
from edgekit.runtime import ort
from edgekit.storage.limits import limits_for
from edgekit_inspect.inspection import UNCOUNTED, layers_of, onnx_artifact, recorded_row
from edgekit_inspect.operator_rules import TABLES, Rules, Table, key
from edgekit_targets.onnx import qnn
from edgekit_targets.onnx.passes.graph import copied
from edgekit_targets.onnx.passes.optimizer import fixed

if TYPE_CHECKING:
    import onnx

    from edgekit.model.spec import Array

HALF_MAX = 65504.0
"""The largest finite value of fp16."""
QNN = "qnn"
PROVIDERS = (*TABLES, QNN)


@dataclass(frozen=True)
class Left:
    """Nodes that it would not take, for one reason, by operator."""

    reason: str
    operators: Mapping[str, int]


@dataclass(frozen=True)
class Coverage:
    """What of one graph a provider would take.

    Attributes:
        sizes: Of the open axes; empty where they are open.
        nodes: Of the graph.
        taken: Of them.
        partitions: Connected groups of taken nodes, as ONNX Runtime makes them; each costs a copy in and out.
        multiplications: Of the graph at the sizes that are asked.
        taken_multiplications: Of them.
        left: The rest, the most frequent reason first.
        unchecked: Restrictions of taken operators that nothing here checks.
        uncounted: Nodes whose multiplications are not counted, by operator.
    """

    sizes: Mapping[str, int]
    nodes: int
    taken: int
    partitions: int
    multiplications: int
    taken_multiplications: int
    left: tuple[Left, ...]
    unchecked: tuple[str, ...]
    uncounted: Mapping[str, int]

    @property
    def share(self) -> float:
        """Of the multiplications, 0 to 1."""
        return self.taken_multiplications / max(self.multiplications, 1)


@dataclass(frozen=True)
class Answer:
    """What a provider would take of an artifact.

    Attributes:
        target: The artifact's target.
        provider: Its name in `PROVIDERS`.
        said_by: What says so.
        found: As the graph is, and at fixed sizes where axes are open.
        largest: The largest finite value of any inner tensor of the asked input, and its tensor; fp16 ends at 65504.
    """

    target: str
    provider: str
    said_by: str
    found: tuple[Coverage, ...]
    largest: tuple[float, str] | None = None

    def as_record(self) -> dict[str, Any]:
        """As JSON."""
        return {"schema_version": 1, **asdict(self), "verified": False}


def would_take(folder: Path, provider: str) -> Answer:
    """Ask for an ONNX artifact in its build.

    Raises:
        UsageError: If it is no ONNX artifact.
        ArtifactError: If it is damaged.
        DependencyError: If QNN's package is not installed.
    """
    import onnxruntime

    manifest = onnx_artifact(folder)
    if provider == QNN and not qnn.installed():
        raise DependencyError(f"provider 'qnn' is asked itself, and is not installed: {qnn.INSTALL}")
    place = folder.resolve()
    arguments = {"build": str(place.parent), "target": place.name, "provider": provider}
    answer = process.call(answered, arguments, limits=limits_for(manifest.size))
    said_by = qnn.named() if provider == QNN else TABLES[provider].said_by.format(version=onnxruntime.__version__)
    known = {"target": manifest.target, "provider": provider, "said_by": said_by}
    return TypeAdapter(Answer).validate_python({**known, **answer})


def answered(build: str, target: str, provider: str, progress: process.Progress) -> dict[str, object]:
    """Read and ask, in a worker."""
    graph, row, sizes = recorded_row(Path(build), target)
    found = [_covered(graph, row, provider, {})]
    if sizes:
        found.append(_covered(fixed(graph, {name: value.shape for name, value in row.items()}), row, provider, sizes))
    half = provider == QNN or TABLES[provider].half
    return {"found": [asdict(one) for one in found], "largest": largest_value(graph, row) if half else None}


def _covered(graph: onnx.ModelProto, row: Mapping[str, Array], provider: str, sizes: Mapping[str, int]) -> Coverage:
    if provider == QNN:
        return _asked(graph, row, sizes)
    return covered(graph, TABLES[provider], row, sizes)


def covered(graph: onnx.ModelProto, table: Table, row: Mapping[str, Array], sizes: Mapping[str, int]) -> Coverage:
    """What a table says of a graph; `row` is an input, at the sizes that multiplications are counted at."""
    from onnxruntime.tools.mobile_helpers.usability_checker import check_partitioning

    rules = Rules.of(graph, table)
    groups = check_partitioning(rules.graph, rules, require_fixed_input_sizes=False)
    taken = {key(node) for group in groups.supported_groups for node in group}
    unchecked = sorted(f"{name}: {note}" for name, note in rules.unchecked if name in rules.took)
    return _counted(graph, row, sizes, taken, groups.num_partitions, rules.why, tuple(unchecked))


def _asked(graph: onnx.ModelProto, row: Mapping[str, Array], sizes: Mapping[str, int]) -> Coverage:
    """What QNN itself takes."""
    if any(dim.dim_param for value in graph.graph.input for dim in value.type.tensor_type.shape.dim):
        why = {key(node): "takes fixed sizes only" for node in graph.graph.node}
        return _counted(graph, row, sizes, set(), 0, why, ())
    named = copied(graph)
    for node in named.graph.node:
        node.name = key(node)
    partitions, left = qnn.assigned(named)
    taken = {key(node) for node in graph.graph.node} - left
    return _counted(graph, row, sizes, taken, partitions, dict.fromkeys(left, "its compiler does not take it"), ())


def _counted(
    graph: onnx.ModelProto,
    row: Mapping[str, Array],
    sizes: Mapping[str, int],
    taken: set[str],
    partitions: int,
    why: Mapping[str, str],
    unchecked: tuple[str, ...],
) -> Coverage:
    nodes = list(every_node(graph.graph))
    layers = layers_of(graph, row)
    names = {node.name or node.output[0] for node in nodes if key(node) in taken}
    reasons: dict[str, Counter[str]] = {}
    for node in nodes:
        if key(node) not in taken:
            reasons.setdefault(why.get(key(node), "no reason given"), Counter())[node.op_type] += 1
    left = sorted(reasons.items(), key=lambda item: -item[1].total())
    return Coverage(
        sizes=sizes,
        nodes=len(nodes),
        taken=len(nodes) - sum(count.total() for count in reasons.values()),
        partitions=partitions,
        multiplications=sum(layer.multiplications for layer in layers),
        taken_multiplications=sum(layer.multiplications for layer in layers if layer.name in names),
        left=tuple(Left(text, dict(count.most_common())) for text, count in left),
        unchecked=unchecked,
        uncounted=dict(Counter(node.op_type for node in nodes if node.op_type in UNCOUNTED)),
    )


def largest_value(graph: onnx.ModelProto, row: Mapping[str, Array]) -> tuple[float, str] | None:
    """The largest finite magnitude among inner floating-point tensors of one input, with its tensor's name."""
    names = [name for node in graph.graph.node for name in node.output if name]
    values = ort.tapped(graph, names).run(row)
    sized = [
        (float(np.abs(value[np.isfinite(value)]).max(initial=0.0)), name)
        for name, value in values.items()
        if value.dtype.kind == "f"
    ]
    return max(sized, default=None)
