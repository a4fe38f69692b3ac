"""Linear layers whose features are taken apart, as one layer for each part.

Attention packs queries, keys and values into one layer and selects them from its answer. XNNPACK takes no selection
where the batch grows, and each would end its subgraph. The weights' rows are selected instead, once, at export.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from edgekit_targets.executorch.xnnpack import constants

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class _Layout:
    """Where the axes of a layer's answer went.

    Attributes:
        axes: For each axis of a tensor the one of the layer's answer: 0, 1, ... for those before the features; -1, -2,
            ... for those that the features were split into, the first one first; None for an axis of one.
        features: Sizes of the axes that the features were split into.
    """

    axes: tuple[int | None, ...]
    features: tuple[int, ...]


@dataclass(frozen=True)
class _Selection:
    """An operator that takes a part of the features: `rows` of those along one of their axes."""

    node: torch.fx.Node
    layout: _Layout
    rows: torch.Tensor


def split_linears(module: torch.fx.GraphModule) -> None:
    """Replace each linear layer all of whose features are only read in parts, by select and slice."""
    import torch

    for node in list(module.graph.nodes):
        if node.target is not torch.ops.aten.linear.default or constants.value(module, node.args[1]) is None:
            continue
        shape = node.meta["val"].shape
        whole = _Layout((*range(len(shape) - 1), -1), (int(shape[-1]),))
        selections = list(_selections(node, whole))
        known = [found for found in selections if found is not None]
        if known and len(known) == len(selections) and sum(len(s.rows) for s in known) <= shape[-1]:
            for number, selection in enumerate(known):
                _replace(module, node, selection, number)
    module.graph.eliminate_dead_code()


def _selections(node: torch.fx.Node, layout: _Layout) -> Iterator[_Selection | None]:
    """What reads the answer of a layer behind operators that lay it out otherwise; None for what reads it whole."""
    import torch

    aten = torch.ops.aten
    for user in node.users:
        if user.target in (aten.select.int, aten.slice.Tensor):
            yield _selection(user, layout)
        elif (moved := _moved(user, layout)) is not None:
            yield from _selections(user, moved)
        else:
            yield None


def _selection(node: torch.fx.Node, layout: _Layout) -> _Selection | None:
    import torch

    axis = constants.argument(node, 1) % len(layout.axes)
    name = layout.axes[axis]
    if name is None or name >= 0:
        return None
    feature = -name - 1
    rows = torch.arange(math.prod(layout.features)).reshape(layout.features)
    taken = node.target(rows, feature, *node.args[2:])  # type: ignore[operator]
    if node.target is torch.ops.aten.slice.Tensor:
        return _Selection(node, _Layout(layout.axes, tuple(taken.shape)), taken.flatten())
    kept = (a for place, a in enumerate(layout.axes) if place != axis)
    axes = tuple(a + 1 if a is not None and a < name else a for a in kept)
    return _Selection(node, _Layout(axes, tuple(taken.shape)), taken.flatten())


def _moved(node: torch.fx.Node, layout: _Layout) -> _Layout | None:
    """The layout behind an operator that moves, adds or splits axes; None for others."""
    import torch

    aten, axes, place = torch.ops.aten, list(layout.axes), constants.argument(node, 1)
    if node.target in (aten.clone.default, aten.contiguous.default):
        return layout
    if node.target is aten.permute.default:
        return _Layout(tuple(axes[d] for d in place), layout.features)
    if node.target is aten.transpose.int:
        one, other = place, constants.argument(node, 2)
        axes[one], axes[other] = axes[other], axes[one]
        return _Layout(tuple(axes), layout.features)
    if node.target is aten.unsqueeze.default:
        axes.insert(place % (len(axes) + 1), None)
        return _Layout(tuple(axes), layout.features)
    if node.target is aten.squeeze.dim and axes[place] is None:
        del axes[place]
        return _Layout(tuple(axes), layout.features)
    if node.target in (aten.view.default, aten.reshape.default, aten.unflatten.int):
        # The layout behind a view that only splits the last axis.
        before, after = node.all_input_nodes[0].meta["val"].shape, node.meta["val"].shape
        outer = len(before) - 1
        if layout.axes != (*range(outer), -1) or len(after) <= outer or tuple(after[:outer]) != tuple(before[:outer]):
            return None
        features = tuple(int(size) for size in after[outer:])
        return _Layout((*range(outer), *(-1 - n for n in range(len(features)))), features)
    return None


def _replace(module: torch.fx.GraphModule, layer: torch.fx.Node, selection: _Selection, number: int) -> None:
    """A layer of the selected rows alone, laid out as the selection was."""
    import torch

    aten, graph, layout = torch.ops.aten, module.graph, selection.layout
    outer = len(layer.meta["val"].shape) - 1
    name = str(layer.args[1].target)  # type: ignore[union-attr]  # get_attr
    owner = name.rpartition(".")[0]
    home = f"{owner}.part_{number}" if owner else f"{name}_part_{number}"  # a weight of the model's own is no module
    with graph.inserting_before(selection.node):
        given = [constants.value(module, constant) for constant in layer.args[1:3]]
        parts = [
            constants.add(module, f"{home}.{kind}", tensor[selection.rows])
            for kind, tensor in zip(("weight", "bias"), given, strict=False)
            if tensor is not None
        ]
        node = graph.call_function(aten.linear.default, (layer.args[0], *parts))
        if not layout.features:  # one feature was selected
            node = graph.call_function(aten.squeeze.dim, (node, outer))
        elif len(layout.features) != 1:
            node = graph.call_function(aten.unflatten.int, (node, outer, list(layout.features)))
        order = [axis if axis >= 0 else outer - axis - 1 for axis in layout.axes if axis is not None]
        if order != sorted(order):
            node = graph.call_function(aten.permute.default, (node, order))
        for place, axis in enumerate(layout.axes):
            if axis is None:
                node = graph.call_function(aten.unsqueeze.default, (node, place))
    node.meta = dict(selection.node.meta)
    selection.node.replace_all_uses_with(node)
