"""Constants that say which module they come from, where the exporter computed all that the module does.

    positions = Embedding(arange(12)) -> Add        becomes a constant `embedding_1`, and Add is the outer module's
    positions.embedding_1 -> Add                    as it is named here

Modules with a node of their own, and weights of layers, are named by their nodes.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

from edgekit_targets.onnx.passes.graph import on_ir
from edgekit_targets.onnx.passes.weight_only import CHANNEL, RECURRENT

if TYPE_CHECKING:
    import onnx_ir as ir

SCOPES = "pkg.torch.onnx.name_scopes"
"""The exporter's note of the modules that a node stands in, the outermost first, then the node itself."""
FOLDED = "pkg.onnxscript.optimizer.folded_from"
"""The optimizer's note of the values that a constant was computed from."""
LAYERS = frozenset((*CHANNEL, RECURRENT))
"""Operators whose second input is a weight."""
_FX_NAMES = re.compile(r"[^\w.]+")


def module_path(notes: Mapping[str, str]) -> str:
    """The module that a node stands in, by the exporter's notes on it; empty in the outermost `forward`."""
    scopes = ast.literal_eval(notes.get(SCOPES, "[]"))
    path = next((scope for scope in reversed(scopes[:-1]) if scope and not scope.startswith("_")), "")
    return _FX_NAMES.sub("_", path)


@on_ir
def name_constants(model: ir.Model) -> None:
    """Put the module's path before the name of each constant of which alone a module consists."""
    there = {module_path(node.metadata_props) for node in model.graph}
    for name, value in tuple(model.graph.initializers.items()):
        folded = ast.literal_eval(value.metadata_props.get(FOLDED, "[]"))
        paths = {source.rpartition(".")[0] for source in folded} - there - {""}
        layers = any(use.node.op_type in LAYERS for use in value.uses())
        if len(paths) == 1 and not layers and not value.is_graph_output():
            model.graph.initializers.pop(name)
            value.name = f"{paths.pop()}.{name}"
            model.graph.register_initializer(value)
