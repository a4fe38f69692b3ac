"""Scales and shifts beside a layer, as part of its weights.

The scale of attention and the normalization of pixels each are a pass over memory; in a layer's weights they cost
nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgekit_targets.executorch.xnnpack import constants

if TYPE_CHECKING:
    import torch


def fold_scales(module: torch.fx.GraphModule) -> None:
    """Fold numbers that follow a linear layer or come before a convolution."""
    import torch

    aten = torch.ops.aten
    for node in list(module.graph.nodes):
        if node.target in (aten.mul.Tensor, aten.div.Tensor):
            _fold_into_layer_before(module, node)
        elif node.target is aten.conv2d.default:
            _fold_into_convolution(module, node)
    module.graph.eliminate_dead_code()


def _fold_into_layer_before(module: torch.fx.GraphModule, node: torch.fx.Node) -> None:
    """A number times a linear layer's answer, which nothing else reads and which is only laid out between."""
    import torch

    aten = torch.ops.aten
    layouts = (aten.reshape.default, aten.view.default, aten.unflatten.int, aten.permute.default, aten.transpose.int)
    before, factor = (constants.argument(node, place) for place in (0, 1))
    layer = before
    while isinstance(layer, torch.fx.Node) and layer.target in layouts and len(layer.users) == 1:
        layer = layer.args[0]
    if not isinstance(layer, torch.fx.Node) or layer.target is not aten.linear.default or len(layer.users) != 1:
        return
    weights = [constants.value(module, constant) for constant in layer.args[1:]]
    if not isinstance(factor, (int, float)) or not all(isinstance(weight, torch.Tensor) for weight in weights):
        return
    scale = float(factor) if node.target is aten.mul.Tensor else 1.0 / factor
    constants.set_weights(module, layer, [weight * scale for weight in weights if weight is not None])
    node.replace_all_uses_with(before)


def _fold_into_convolution(module: torch.fx.GraphModule, node: torch.fx.Node) -> None:
    """Numbers by which pixels are scaled and shifted before a convolution that pads nothing."""
    weight, bias = constants.value(module, node.args[1]), constants.value(module, constants.argument(node, 2))
    padding = constants.argument(node, 4)
    if weight is None or bias is None or any(padding or ()) or constants.argument(node, 6, 1) != 1:
        return
    scale, shift, x = 1.0, 0.0, node.args[0]
    while step := _affine(x):
        x, times, plus = step
        shift += scale * plus
        scale *= times
    if x is not node.args[0]:
        constants.set_weights(module, node, [weight * scale, bias + shift * weight.sum((1, 2, 3))])
        node.args = (x, *node.args[1:])


def _affine(node: object) -> tuple[torch.fx.Node, float, float] | None:
    """What a node scales and shifts by numbers; None for others."""
    import torch

    aten = torch.ops.aten
    if not isinstance(node, torch.fx.Node) or len(node.args) != 2 or node.kwargs or len(node.users) != 1:
        return None
    x, number = node.args
    if not isinstance(x, torch.fx.Node) or not isinstance(number, (int, float)):
        return None
    steps = {aten.mul.Tensor: (number, 0.0), aten.add.Tensor: (1.0, number), aten.sub.Tensor: (1.0, -number)}
    if node.target is aten.div.Tensor:
        return x, 1.0 / number, 0.0
    found = steps.get(node.target)  # type: ignore[call-overload]  # operators are hashed
    return (x, *found) if found else None
