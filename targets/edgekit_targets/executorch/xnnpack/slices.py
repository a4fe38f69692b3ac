"""Sums and rows of slices along one axis, as one product with a matrix.

XNNPACK takes no slice where the batch grows. A filter that is written as sums of shifted slices, and a border that is
repeated, are linear along an axis: one small matrix has all of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from edgekit_targets.executorch.xnnpack import constants

if TYPE_CHECKING:
    import torch

LARGEST = 1 << 19
"""Multiplications for one sample beyond which copying the slices is quicker than a product."""
LEAST = 2
"""Slices below which nothing is gained."""


@dataclass(frozen=True)
class _Combination:
    """A tensor whose values along an axis are a matrix times those of another.

    Attributes:
        base: The other tensor.
        axis: The axis, from the front.
        matrix: [values here, values of the base].
        slices: How many slices it is made of.
    """

    base: torch.fx.Node
    axis: int
    matrix: torch.Tensor
    slices: int

    def extends(self, other: _Combination) -> bool:
        """Whether both are of the same values."""
        return self.base is other.base and self.axis == other.axis


def combine_slices(module: torch.fx.GraphModule) -> None:
    """Replace what at least two slices of a tensor with a growing axis are combined to."""
    found: dict[torch.fx.Node, _Combination] = {}
    for node in module.graph.nodes:
        if combination := _combination(node, found):
            found[node] = combination
    products: dict[torch.fx.Node, torch.fx.Node] = {}
    for number, (node, combination) in enumerate(found.items()):
        outer = [user for user in node.users if user not in found or not found[user].extends(combination)]
        if not outer or combination.slices < LEAST or not _is_worth_it(combination):
            continue
        with module.graph.inserting_before(node):
            matrix = constants.add(module, f"{constants.OWN}slices_{number}", combination.matrix)
            base = products.get(combination.base, combination.base)
            products[node] = product = module.graph.call_function(along, (base, matrix, combination.axis))
        for user in outer:
            user.replace_input_with(node, product)
    module.graph.eliminate_dead_code()


def along(x: torch.Tensor, matrix: torch.Tensor, axis: int) -> torch.Tensor:
    """A matrix [m, n] times the n values along an axis."""
    import torch

    return torch.nn.functional.linear(x.transpose(axis, -1), matrix).transpose(axis, -1)


def _combination(node: torch.fx.Node, found: dict[torch.fx.Node, _Combination]) -> _Combination | None:
    import torch

    aten = torch.ops.aten
    if node.op != "call_function" or not isinstance(node.meta.get("val"), torch.Tensor):
        return None
    if node.meta["val"].dtype != torch.float32:
        return None
    if node.target is aten.slice.Tensor:
        return _slice(node, found)
    if node.target is aten.cat.default:
        axis = constants.argument(node, 1, 0) % node.meta["val"].dim()
        return _joined(constants.argument(node, 0), axis, found)
    if node.target in (aten.add.Tensor, aten.sub.Tensor, aten.mul.Tensor, aten.div.Tensor) and not node.kwargs:
        return _calculated(node, found)
    return None


def _slice(node: torch.fx.Node, found: dict[torch.fx.Node, _Combination]) -> _Combination | None:
    import torch

    x = node.all_input_nodes[0]
    axis = constants.argument(node, 1, 0) % x.meta["val"].dim()
    size = x.meta["val"].shape[axis]
    if not isinstance(size, int) or not constants.is_dynamic(x) or len(node.all_input_nodes) > 1:
        return None
    rows = torch.ops.aten.slice.Tensor(torch.arange(size), 0, *node.args[2:])
    known = found.get(x)
    if known and known.axis == axis:
        return _Combination(known.base, axis, known.matrix[rows], known.slices + 1)
    if known and len(rows) == size:
        return known
    return _Combination(x, axis, torch.eye(size)[rows], 1)


def _joined(parts: list[torch.fx.Node], axis: int, found: dict[torch.fx.Node, _Combination]) -> _Combination | None:
    import torch

    first = next((found[part] for part in parts if part in found and found[part].axis == axis), None)
    if first is None:
        return None
    whole = [_seen_from(first, part, found) for part in parts]
    known = [part for part in whole if part is not None]
    if len(known) < len(parts):
        return None
    return _Combination(first.base, axis, torch.cat([k.matrix for k in known]), sum(k.slices for k in known))


def _seen_from(
    first: _Combination, part: torch.fx.Node, found: dict[torch.fx.Node, _Combination]
) -> _Combination | None:
    """A part as a combination of the same values as another; None where it is not one."""
    import torch

    if part is first.base:
        return _Combination(part, first.axis, torch.eye(first.matrix.shape[1]), 0)
    known = found.get(part)
    return known if known and known.extends(first) else None


def _calculated(node: torch.fx.Node, found: dict[torch.fx.Node, _Combination]) -> _Combination | None:
    import torch

    aten = torch.ops.aten
    one, other = node.args[:2]
    first = next((found[a] for a in (one, other) if isinstance(a, torch.fx.Node) and a in found), None)
    if first is None:
        return None
    if node.target in (aten.mul.Tensor, aten.div.Tensor):
        factor = other if isinstance(other, (int, float)) else None
        if factor is None or one not in found:
            return None
        scale = float(factor) if node.target is aten.mul.Tensor else 1.0 / float(factor)
        return _Combination(first.base, first.axis, first.matrix * scale, first.slices)
    pair = [_seen_from(first, a, found) for a in (one, other) if isinstance(a, torch.fx.Node)]
    known = [a for a in pair if a is not None]
    if len(known) < 2 or known[0].matrix.shape != known[1].matrix.shape:
        return None
    sign = 1.0 if node.target is aten.add.Tensor else -1.0
    matrix = known[0].matrix + sign * known[1].matrix
    return _Combination(first.base, first.axis, matrix, known[0].slices + known[1].slices)


def _is_worth_it(combination: _Combination) -> bool:
    sizes = [size for size in combination.base.meta["val"].shape if isinstance(size, int)]
    cost = len(combination.matrix)
    for size in sizes:
        cost *= size
    return cost <= LARGEST
