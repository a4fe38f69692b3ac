"""XNNPACK's parts of a graph without cycles between them.

ExecuTorch 1.4's `GroupBasedPartitioner` joins groups of operators without looking at paths that lead out of a part and
back into it, and then refuses its own choice. This happens in models with several towers, and in quantized attention.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from edgekit.runtime.logs import silent

if TYPE_CHECKING:
    import torch
    from executorch.exir.backend.partitioner import Partitioner
    from torch.fx.passes.infra.partitioner import Partition


def xnnpack_partitioner() -> Partitioner:
    """Return ExecuTorch's partitioner. If its parts have a cycle, it chooses one part for each depth of the graph."""
    with silent():
        from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
        from torch.fx.passes.infra.partitioner import Partition

    class AcyclicPartitioner(XnnpackPartitioner):  # type: ignore[misc]  # ExecuTorch has no types
        def generate_partitions(self, ep: torch.export.ExportedProgram) -> list[Partition]:
            chosen: list[Partition] = super().generate_partitions(ep)
            graph = ep.graph_module.graph
            if in_order(graph, [list(part.nodes) for part in chosen]):
                return chosen
            parts = parts_by_depth(graph, self.get_matched_nodes_from_configs(ep))
            return [Partition(id=number, nodes=dict.fromkeys(part)) for number, part in enumerate(parts)] or chosen

    return AcyclicPartitioner()


def in_order(graph: torch.fx.Graph, groups: Sequence[Iterable[torch.fx.Node]]) -> list[list[torch.fx.Node]]:
    """Return the groups and the single other nodes, each after all that it needs; empty if groups need each other."""
    number_of = {node: number for number, group in enumerate(groups) for node in group}
    units: dict[int, list[torch.fx.Node]] = defaultdict(list)
    for node in graph.nodes:
        units[number_of.setdefault(node, len(groups) + len(number_of))].append(node)
    needs = {
        number: {number_of[needed] for node in unit for needed in node.all_input_nodes} - {number}
        for number, unit in units.items()
    }
    users: dict[int, list[int]] = defaultdict(list)
    for number, needed in needs.items():
        for each in needed:
            users[each].append(number)
    missing = {number: len(needed) for number, needed in needs.items()}
    ready = [number for number, count in missing.items() if not count]
    for number in ready:
        for user in users[number]:
            missing[user] -= 1
            if not missing[user]:
                ready.append(user)
    return [units[number] for number in ready] if len(ready) == len(units) else []


def parts_by_depth(graph: torch.fx.Graph, groups: Sequence[Sequence[torch.fx.Node]]) -> list[list[torch.fx.Node]]:
    """Return one part for each depth: the number of times that a path from an input came into the delegate.

    All groups of one depth can run together, and each part needs only parts of smaller depth.
    """
    delegated = {node for group in groups for node in group}
    depths: dict[torch.fx.Node, int] = {}
    parts: dict[int, list[torch.fx.Node]] = defaultdict(list)
    for unit in in_order(graph, groups):
        inside = unit[0] in delegated
        depth = max((_entered(n, depths, delegated, inside) for node in unit for n in node.all_input_nodes), default=-1)
        depths |= dict.fromkeys(unit, depth)
        if inside:
            parts[depth] += unit
    return [parts[depth] for depth in sorted(parts)]


def _entered(
    needed: torch.fx.Node, depths: Mapping[torch.fx.Node, int], delegated: set[torch.fx.Node], inside: bool
) -> int:
    return depths.get(needed, -1) + (inside and needed not in delegated)
