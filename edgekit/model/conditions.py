"""`torch.cond` for targets without branches: both branches are computed, and the condition selects their outputs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch


def select_branches(exported: torch.export.ExportedProgram) -> torch.export.ExportedProgram:
    """Replace each `torch.cond` of a program, in place, and return the program.

    Before and after::

        cond(predicate, true_graph, false_graph, (x,))
        where(predicate, nodes of true_graph, nodes of false_graph)
    """
    if _inline(exported.graph_module):
        exported.graph_module.graph.lint()
        exported.graph_module.recompile()
    return exported


def _inline(module: torch.fx.GraphModule) -> bool:
    import torch

    calls = [node for node in module.graph.nodes if node.target is torch.ops.higher_order.cond]
    for node in calls:
        predicate, *branches, operands = node.args
        # A condition on sizes is a number of the program, not a tensor.
        if not isinstance(predicate.meta.get("val"), torch.Tensor):
            continue
        with module.graph.inserting_before(node):
            if predicate.meta["val"].dim():
                value = predicate.meta["val"].any()
                predicate = module.graph.call_function(torch.ops.aten.any.default, (predicate,))
                predicate.meta["val"] = value
            true_outputs, false_outputs = (_copied(module, branch, operands) for branch in branches)
        for user in list(node.users):
            first, second = (outputs[user.args[1]] for outputs in (true_outputs, false_outputs))
            _replace_by_selection(module.graph, user, (predicate, first, second))
        module.graph.erase_node(node)
        for branch in branches:
            if not branch.users:
                module.graph.erase_node(branch)
                module.delete_submodule(branch.target)
    return bool(calls)


def _copied(module: torch.fx.GraphModule, branch: torch.fx.Node, operands: Any) -> Any:
    """Copy the nodes of a branch into the graph at its insertion point, and return its outputs."""
    inner: Any = module.get_submodule(str(branch.target))
    _inline(inner)
    places = [node for node in inner.graph.nodes if node.op == "placeholder"]
    values = dict(zip(places, operands, strict=True))
    return module.graph.graph_copy(inner.graph, values)


def _replace_by_selection(graph: torch.fx.Graph, output: torch.fx.Node, selected: Any) -> None:
    import torch

    with graph.inserting_before(output):
        selection = graph.call_function(torch.ops.aten.where.self, selected)
    selection.meta = dict(output.meta)
    output.replace_all_uses_with(selection)
    name = output.name
    graph.erase_node(output)
    # The program's signature names its outputs by their nodes.
    selection._rename(name)
