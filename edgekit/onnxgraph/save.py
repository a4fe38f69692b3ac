"""Writing an ONNX graph: checked, without the maker's version, byte-identical for the same graph."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from edgekit.errors import ExportError

if TYPE_CHECKING:
    import onnx


def save_graph(graph: onnx.ModelProto, path: Path) -> None:
    """Check a graph and write it.

    Raises:
        ExportError: If it breaks ONNX's rules.
    """
    import onnx

    try:
        onnx.checker.check_model(graph, full_check=True)
    except Exception as error:
        raise ExportError(f"the graph breaks ONNX's rules: {str(error).splitlines()[0]}") from error
    graph.producer_name, graph.producer_version = "edgekit", ""
    path.write_bytes(graph.SerializeToString(deterministic=True))
