"""Which operators a reduced build of ONNX Runtime must have: those of the models, and those that it fuses them into.

The format is ONNX Runtime's own (https://onnxruntime.ai/docs/reference/operators/reduced-operator-config-file.html):
lines of `domain;opset;operator,operator`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import onnx

HEAD = "# Written by `edgekit assets`: python tools/ci_build/build.py ... --include_ops_by_config THIS_FILE\n"


def required_operators(models: Iterable[Path]) -> str:
    """The config for some models, as stored and as ONNX Runtime optimises them when it loads them."""
    import onnx

    needed: dict[tuple[str, int], set[str]] = defaultdict(set)
    for path in models:
        for graph in (onnx.load(path, load_external_data=False), _optimised(path)):
            versions = {o.domain or "ai.onnx": o.version for o in graph.opset_import}
            _collect(graph.graph, versions, needed)
    return HEAD + "".join(
        f"{domain};{version};{','.join(sorted(names))}\n" for (domain, version), names in sorted(needed.items())
    )


def _optimised(path: Path) -> onnx.ModelProto:
    import onnx
    import onnxruntime

    with TemporaryDirectory() as scratch:
        kept = Path(scratch) / "optimised.onnx"
        options = onnxruntime.SessionOptions()
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
        options.optimized_model_filepath = str(kept)
        options.log_severity_level = 3  # it warns that an optimised model belongs to this machine; only names are read
        onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        return onnx.load(kept)


def _collect(graph: onnx.GraphProto, versions: dict[str, int], needed: dict[tuple[str, int], set[str]]) -> None:
    for node in graph.node:
        domain = node.domain or "ai.onnx"
        needed[(domain, versions.get(domain, 1))].add(node.op_type)
        for attribute in node.attribute:
            if attribute.HasField("g"):
                _collect(attribute.g, versions, needed)
