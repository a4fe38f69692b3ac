"""Rewrites of a captured graph so that XNNPACK takes it in few subgraphs.

Each operator that XNNPACK does not take ends its subgraph. `rewrite` runs the passes over PyTorch's operators in their
order. `simplify_views` follows in ExecuTorch's own operators.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch
    from torch.fx.passes.infra.pass_base import PassResult

LARGEST = 1 << 19
"""Multiplications for one sample above which copying the slices is quicker than a product."""
LEAST = 2
"""Count of slices below which nothing is gained."""
# Count of dimensions.
PICTURE = 4
OWN = "_xnnpack_"
"""Prefix for the names of new matrices, which stay in fp32."""


def rewrite(module: torch.fx.GraphModule, *, fold: bool) -> None:
    """Rewrite a graph in operators that XNNPACK takes, each pass on the result of the one before.

    Args:
        module: Changed in place. Its nodes have their shapes (`meta["val"]`). Some of its operators become functions,
            so it must be captured again.
        fold: Whether slopes of layer norms go into weights.
    """
    split_linears(module)
    fold_scales(module)
    if fold:
        fold_norms(module)
    combine_slices(module)
    write_out_reductions(module)
    module.recompile()


@dataclass(frozen=True)
class _Layout:
    """Positions of the axes of a layer's answer.

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
    """Replace each linear layer whose features are read only in parts, by select and slice.

    Attention packs queries, keys and values into one layer and selects them from its answer. XNNPACK takes no selection
    where the batch grows, and each would end its subgraph. So the weights' rows are selected instead, once, at export.
    """
    import torch

    for node in list(module.graph.nodes):
        if node.target is not torch.ops.aten.linear.default or value(module, node.args[1]) is None:
            continue
        shape = node.meta["val"].shape
        whole = _Layout((*range(len(shape) - 1), -1), (int(shape[-1]),))
        selections = list(_selections(node, whole))
        shared = [selection for selection in selections if selection is not None]
        if shared and len(shared) == len(selections) and sum(len(s.rows) for s in shared) <= shape[-1]:
            for number, selection in enumerate(shared):
                _replace(module, node, selection, number)
    module.graph.eliminate_dead_code()


def _selections(node: torch.fx.Node, layout: _Layout) -> Iterator[_Selection | None]:
    """Return the part of a layer's answer that a node reads, past changes of layout, or None if it reads all."""
    import torch

    aten = torch.ops.aten
    for user in node.users:
        if user.target in (aten.select.int, aten.slice.Tensor):
            yield _selection(user, layout)
        elif (moved := _moved_layout(user, layout)) is not None:
            yield from _selections(user, moved)
        else:
            yield None


def _selection(node: torch.fx.Node, layout: _Layout) -> _Selection | None:
    import torch

    axis = argument(node, 1) % len(layout.axes)
    name = layout.axes[axis]
    if name is None or name >= 0:
        return None
    feature = -name - 1
    rows = torch.arange(math.prod(layout.features)).reshape(layout.features)
    slices = node.target(rows, feature, *node.args[2:])  # type: ignore[operator]
    if node.target is torch.ops.aten.slice.Tensor:
        return _Selection(node, _Layout(layout.axes, tuple(slices.shape)), slices.flatten())
    dimensions = (a for place, a in enumerate(layout.axes) if place != axis)
    axes = tuple(a + 1 if a is not None and a < name else a for a in dimensions)
    return _Selection(node, _Layout(axes, tuple(slices.shape)), slices.flatten())


def _moved_layout(node: torch.fx.Node, layout: _Layout) -> _Layout | None:
    """Return the layout after an operator that moves, adds or splits axes, or None for others."""
    import torch

    aten, axes, place = torch.ops.aten, list(layout.axes), argument(node, 1)
    if node.target in (aten.clone.default, aten.contiguous.default):
        return layout
    if node.target is aten.permute.default:
        return _Layout(tuple(axes[d] for d in place), layout.features)
    if node.target is aten.transpose.int:
        source, other = place, argument(node, 2)
        axes[source], axes[other] = axes[other], axes[source]
        return _Layout(tuple(axes), layout.features)
    if node.target is aten.unsqueeze.default:
        axes.insert(place % (len(axes) + 1), None)
        return _Layout(tuple(axes), layout.features)
    if node.target is aten.squeeze.dim and axes[place] is None:
        del axes[place]
        return _Layout(tuple(axes), layout.features)
    if node.target in (aten.view.default, aten.reshape.default, aten.unflatten.int):
        # The layout after a view that only splits the last axis.
        before, after = node.all_input_nodes[0].meta["val"].shape, node.meta["val"].shape
        outer = len(before) - 1
        if layout.axes != (*range(outer), -1) or len(after) <= outer or tuple(after[:outer]) != tuple(before[:outer]):
            return None
        features = tuple(int(size) for size in after[outer:])
        return _Layout((*range(outer), *(-1 - n for n in range(len(features)))), features)
    return None


def _replace(module: torch.fx.GraphModule, layer: torch.fx.Node, selection: _Selection, number: int) -> None:
    """Return a layer of only the selected rows, in the layout of the selection."""
    import torch

    aten, graph, layout = torch.ops.aten, module.graph, selection.layout
    outer = len(layer.meta["val"].shape) - 1
    name = str(layer.args[1].target)  # type: ignore[union-attr]  # get_attr
    owner = name.rpartition(".")[0]
    # A weight of the model itself belongs to no module.
    home = f"{owner}.part_{number}" if owner else f"{name}_part_{number}"
    with graph.inserting_before(selection.node):
        constants = [value(module, constant) for constant in layer.args[1:3]]
        parts = [
            add(module, f"{home}.{kind}", tensor[selection.rows])
            for kind, tensor in zip(("weight", "bias"), constants, strict=False)
            if tensor is not None
        ]
        node = graph.call_function(aten.linear.default, (layer.args[0], *parts))
        # One feature was selected.
        if not layout.features:
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


def fold_scales(module: torch.fx.GraphModule) -> None:
    """Fold numbers that follow a linear layer or come before a convolution.

    The scale of attention and the normalization of pixels each are a pass over memory. In a layer's weights they cost
    nothing.
    """
    import torch

    aten = torch.ops.aten
    for node in list(module.graph.nodes):
        if node.target in (aten.mul.Tensor, aten.div.Tensor):
            _fold_into_layer_before(module, node)
        elif node.target is aten.conv2d.default:
            _fold_into_convolution(module, node)
    module.graph.eliminate_dead_code()


def _fold_into_layer_before(module: torch.fx.GraphModule, node: torch.fx.Node) -> None:
    """Fold a factor of a linear layer's answer into its weights, if nothing else reads the answer."""
    import torch

    aten = torch.ops.aten
    layouts = (aten.reshape.default, aten.view.default, aten.unflatten.int, aten.permute.default, aten.transpose.int)
    before, factor = (argument(node, place) for place in (0, 1))
    layer = before
    while isinstance(layer, torch.fx.Node) and layer.target in layouts and len(layer.users) == 1:
        layer = layer.args[0]
    if not isinstance(layer, torch.fx.Node) or layer.target is not aten.linear.default or len(layer.users) != 1:
        return
    weights = [value(module, constant) for constant in layer.args[1:]]
    if not isinstance(factor, (int, float)) or not all(isinstance(weight, torch.Tensor) for weight in weights):
        return
    scale = float(factor) if node.target is aten.mul.Tensor else 1.0 / factor
    set_weights(module, layer, [weight * scale for weight in weights if weight is not None])
    node.replace_all_uses_with(before)


def _fold_into_convolution(module: torch.fx.GraphModule, node: torch.fx.Node) -> None:
    """Fold the scale and shift of pixels into a convolution without padding."""
    weight, bias = value(module, node.args[1]), value(module, argument(node, 2))
    padding = argument(node, 4)
    if weight is None or bias is None or any(padding or ()) or argument(node, 6, 1) != 1:
        return
    scale, shift, x = 1.0, 0.0, node.args[0]
    while step := _affine(x):
        x, times, plus = step
        shift += scale * plus
        scale *= times
    if x is not node.args[0]:
        set_weights(module, node, [weight * scale, bias + shift * weight.sum((1, 2, 3))])
        node.args = (x, *node.args[1:])


def _affine(node: object) -> tuple[torch.fx.Node, float, float] | None:
    """Return the numbers by which a node scales and shifts, or None for others."""
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
    # Operators are hashed.
    step = steps.get(node.target)  # type: ignore[call-overload]
    return (x, *step) if step else None


def fold_norms(module: torch.fx.GraphModule) -> None:
    """Fold the slopes and shifts of layer norms that only linear layers read.

    They become part of the weights of these layers. INT8 does not use this. Weights on a grid of 8 bits, as those of
    arr-coc-tiny, leave it when their inputs are scaled. Its largest NRMSE on real inputs was 0.105 with them folded,
    0.040 without.
    """
    import torch

    for node in list(module.graph.nodes):
        if node.target is torch.ops.aten.layer_norm.default:
            _fold(module, node)
    module.graph.eliminate_dead_code()


def _fold(module: torch.fx.GraphModule, node: torch.fx.Node) -> None:
    """Fold the slopes and shifts of a layer norm, if only linear layers with a bias read it."""
    import torch

    slopes, shifts = (
        value(module, argument(node, 2)),
        value(module, argument(node, 3)),
    )
    layers = list(node.users)
    if slopes is None or shifts is None or slopes.dim() != 1:
        return
    if any(n.target is not torch.ops.aten.linear.default or n.args[0] is not node for n in layers):
        return
    weights = [(value(module, n.args[1]), value(module, argument(n, 2))) for n in layers]
    if any(
        weight is None or (bias is None and argument(n, 2)) for n, (weight, bias) in zip(layers, weights, strict=True)
    ):
        return
    for layer, (weight, bias) in zip(layers, weights, strict=True):
        if weight is not None:
            shift = weight @ shifts
            set_weights(module, layer, [weight * slopes, shift if bias is None else bias + shift])
    node.args = (*node.args[:2], None, None, *node.args[4:])


@dataclass(frozen=True)
class _Combination:
    """A tensor whose values along an axis are the product of a matrix and those of another tensor.

    Attributes:
        base: The other tensor.
        axis: The axis, from the front.
        matrix: [values here, values of the base].
        slices: Count of its slices.
    """

    base: torch.fx.Node
    axis: int
    matrix: torch.Tensor
    slices: int

    def extends(self, other: _Combination) -> bool:
        """Return whether both are of the same values."""
        return self.base is other.base and self.axis == other.axis


def combine_slices(module: torch.fx.GraphModule) -> None:
    """Replace the combinations of at least two slices of a tensor with a growing axis.

    XNNPACK takes no slice where the batch grows. A filter written as sums of shifted slices is linear along an axis,
    and so is a repeated border. One small matrix replaces all of it.
    """
    combinations: dict[torch.fx.Node, _Combination] = {}
    for node in module.graph.nodes:
        if combination := _combination(node, combinations):
            combinations[node] = combination
    products: dict[torch.fx.Node, torch.fx.Node] = {}
    for number, (node, combination) in enumerate(combinations.items()):
        outer = [user for user in node.users if user not in combinations or not combinations[user].extends(combination)]
        sizes = [size for size in combination.base.meta["val"].shape if isinstance(size, int)]
        cost = math.prod((len(combination.matrix), *sizes))
        if not outer or combination.slices < LEAST or cost > LARGEST:
            continue
        with module.graph.inserting_before(node):
            matrix = add(module, f"{OWN}slices_{number}", combination.matrix)
            base = products.get(combination.base, combination.base)
            products[node] = product = module.graph.call_function(along, (base, matrix, combination.axis))
        for user in outer:
            user.replace_input_with(node, product)
    module.graph.eliminate_dead_code()


def along(x: torch.Tensor, matrix: torch.Tensor, axis: int) -> torch.Tensor:
    """Return a matrix [m, n] times the n values along an axis."""
    import torch

    return torch.nn.functional.linear(x.transpose(axis, -1), matrix).transpose(axis, -1)


def _combination(node: torch.fx.Node, combinations: dict[torch.fx.Node, _Combination]) -> _Combination | None:
    import torch

    aten = torch.ops.aten
    if node.op != "call_function" or not isinstance(node.meta.get("val"), torch.Tensor):
        return None
    if node.meta["val"].dtype != torch.float32:
        return None
    if node.target is aten.slice.Tensor:
        return _slice(node, combinations)
    if node.target is aten.cat.default:
        axis = argument(node, 1, 0) % node.meta["val"].dim()
        return _join_combinations(argument(node, 0), axis, combinations)
    if node.target in (aten.add.Tensor, aten.sub.Tensor, aten.mul.Tensor, aten.div.Tensor) and not node.kwargs:
        return _calculate(node, combinations)
    return None


def _slice(node: torch.fx.Node, combinations: dict[torch.fx.Node, _Combination]) -> _Combination | None:
    import torch

    x = node.all_input_nodes[0]
    axis = argument(node, 1, 0) % x.meta["val"].dim()
    size = x.meta["val"].shape[axis]
    if not isinstance(size, int) or not is_dynamic(x) or len(node.all_input_nodes) > 1:
        return None
    rows = torch.ops.aten.slice.Tensor(torch.arange(size), 0, *node.args[2:])
    combination = combinations.get(x)
    if combination and combination.axis == axis:
        return _Combination(combination.base, axis, combination.matrix[rows], combination.slices + 1)
    if combination and len(rows) == size:
        return combination
    return _Combination(x, axis, torch.eye(size)[rows], 1)


def _join_combinations(
    parts: list[torch.fx.Node], axis: int, combinations: dict[torch.fx.Node, _Combination]
) -> _Combination | None:
    import torch

    first = next(
        (combinations[part] for part in parts if part in combinations and combinations[part].axis == axis), None
    )
    if first is None:
        return None
    whole = [_combination_from(first, part, combinations) for part in parts]
    known = [part for part in whole if part is not None]
    if len(known) < len(parts):
        return None
    return _Combination(first.base, axis, torch.cat([k.matrix for k in known]), sum(k.slices for k in known))


def _combination_from(
    first: _Combination, part: torch.fx.Node, combinations: dict[torch.fx.Node, _Combination]
) -> _Combination | None:
    """Return a part as a combination of the same values as another, or None."""
    import torch

    if part is first.base:
        return _Combination(part, first.axis, torch.eye(first.matrix.shape[1]), 0)
    combination = combinations.get(part)
    return combination if combination and combination.extends(first) else None


def _calculate(node: torch.fx.Node, combinations: dict[torch.fx.Node, _Combination]) -> _Combination | None:
    import torch

    aten = torch.ops.aten
    x, other = node.args[:2]
    first = next((combinations[a] for a in (x, other) if isinstance(a, torch.fx.Node) and a in combinations), None)
    if first is None:
        return None
    if node.target in (aten.mul.Tensor, aten.div.Tensor):
        factor = other if isinstance(other, (int, float)) else None
        if factor is None or x not in combinations:
            return None
        scale = float(factor) if node.target is aten.mul.Tensor else 1.0 / float(factor)
        return _Combination(first.base, first.axis, first.matrix * scale, first.slices)
    pair = [_combination_from(first, a, combinations) for a in (x, other) if isinstance(a, torch.fx.Node)]
    combinations_known = [a for a in pair if a is not None]
    if len(combinations_known) < 2 or combinations_known[0].matrix.shape != combinations_known[1].matrix.shape:
        return None
    sign = 1.0 if node.target is aten.add.Tensor else -1.0
    matrix = combinations_known[0].matrix + sign * combinations_known[1].matrix
    return _Combination(first.base, first.axis, matrix, combinations_known[0].slices + combinations_known[1].slices)


def write_out_reductions(module: torch.fx.GraphModule) -> None:
    """Replace reductions over axes of fixed size.

    XNNPACK has no sum, and only a mean over pictures. A sum over an axis is a product with ones, and a maximum is a
    pool over the whole axis.
    """
    import torch

    aten = torch.ops.aten
    for node in list(module.graph.nodes):
        if node.op != "call_function" or not node.all_input_nodes:
            continue
        read = node.all_input_nodes[0].meta.get("val")
        if not isinstance(read, torch.Tensor) or read.dtype != torch.float32:
            continue
        with module.graph.inserting_before(node):
            if node.target in (aten.mean.dim, aten.sum.dim_IntList):
                _write_out_sum(module, node, read)
            elif node.target is aten.layer_norm.default:
                if all(isinstance(size, int) for size in argument(node, 1)):
                    row = _row(module, argument(node, 1), mean=True)
                    weight, bias, eps = argument(node, 2), argument(node, 3), argument(node, 4, 1e-5)
                    node.target, node.args, node.kwargs = layer_norm, (node.args[0], row, weight, bias, eps), {}
            elif node.target is aten.log_softmax.int and len(node.args) == 2 and _is_last(node.args[1], read):
                node.target, node.args = log_softmax, (node.args[0], _row(module, read.shape[-1:], mean=False))
            elif node.target is aten.amax.default and len(node.args) > 1 and _is_last(node.args[1], read):
                node.target, node.args = maximum, (node.args[0], *node.args[2:])
            elif node.target is aten.avg_pool2d.default and not any(argument(node, 3, (0,))):
                node.target = average_pool


def _write_out_sum(module: torch.fx.GraphModule, node: torch.fx.Node, read: torch.Tensor) -> None:
    import torch

    mean = node.target is torch.ops.aten.mean.dim
    dimensions = argument(node, 1, None) or range(read.dim())
    axes = sorted(int(axis) % read.dim() for axis in dimensions)
    sizes = [read.shape[axis] for axis in axes]
    if "dtype" in node.kwargs or len(node.args) > 3 or any(not isinstance(size, int) for size in sizes):
        return
    keep = bool(argument(node, 2, False))
    if mean and read.dim() == PICTURE and axes == [2, 3]:
        node.target, node.args, node.kwargs = mean_picture, (node.args[0], keep), {}
        return
    row = _row(module, sizes, mean=mean)
    node.target, node.args, node.kwargs = weighted_sum, (node.args[0], row, axes, keep), {}


def layer_norm(
    x: torch.Tensor, mean: torch.Tensor, weight: torch.Tensor | None, bias: torch.Tensor | None, eps: float
) -> torch.Tensor:
    """Return the layer norm over the last axes, which have as many values as `mean`: [1, n], all 1 / n."""
    import torch

    # The first of the last axes with so many values.
    count = mean.shape[1]
    axis = x.dim() - 1
    while math.prod(x.shape[axis:]) < count:
        axis -= 1
    flat = x.flatten(axis)
    centred = flat - torch.nn.functional.linear(flat, mean)
    scale = torch.rsqrt(torch.nn.functional.linear(centred * centred, mean) + eps)
    normal = (centred * scale).reshape(x.shape)
    normal = normal if weight is None else normal * weight
    return normal if bias is None else normal + bias


def log_softmax(x: torch.Tensor, ones: torch.Tensor) -> torch.Tensor:
    """Return the logarithm of the softmax over the last axis, of n values. `ones` is [1, n]."""
    import torch

    shifted = x - maximum(x, True)
    return shifted - torch.log(torch.nn.functional.linear(torch.exp(shifted), ones))


def maximum(x: torch.Tensor, keep: bool = False) -> torch.Tensor:
    """Return the maximum over the last axis. Each row is a channel, since XNNPACK pools those three times faster."""
    import torch

    length = x.shape[-1]
    channels = x.reshape(-1 if x.dim() > 1 else 1, math.prod(x.shape[1:-1]), length, 1)
    largest = torch.nn.functional.max_pool2d(channels, (length, 1), (length, 1))
    return largest.reshape((*x.shape[:-1], 1) if keep else x.shape[:-1])


def weighted_sum(x: torch.Tensor, row: torch.Tensor, axes: Sequence[int], keep: bool) -> torch.Tensor:
    """Return the sum over some axes of the values times those of `row`: [1, n], n values along the axes."""
    import torch

    remaining = [axis for axis in range(x.dim()) if axis not in axes]
    last = x if list(axes) == list(range(len(remaining), x.dim())) else x.permute(*remaining, *axes)
    total = torch.nn.functional.linear(last.flatten(len(remaining)), row)
    shape = [1 if axis in axes else size for axis, size in enumerate(x.shape) if keep or axis not in axes]
    return total.reshape(shape)


def mean_picture(x: torch.Tensor, keep: bool) -> torch.Tensor:
    """Return the mean over height and width of [B, C, H, W]."""
    mean = x.mean((2, 3), keepdim=True)
    return mean if keep else mean.reshape(x.shape[:2])


def average_pool(x: torch.Tensor, kernel: Sequence[int], stride: Sequence[int] = (), *rest: object) -> torch.Tensor:
    """Return a mean pool without padding, so that no padding counts."""
    import torch

    pool = torch.ops.aten.avg_pool2d.default
    pooled: torch.Tensor = pool(x, kernel, stride or kernel, 0, bool(rest[1:] and rest[1]), False, *rest[3:])
    return pooled


def _row(module: torch.fx.GraphModule, sizes: Sequence[int], *, mean: bool) -> torch.fx.Node:
    """Return a constant [1, n] of ones, or of 1 / n for a mean, where n is the product of the sizes."""
    import torch

    count = math.prod(sizes)
    name, each = ("mean", 1.0 / count) if mean else ("sum", 1.0)
    return add(module, f"{OWN}{name}_{count}", torch.full((1, count), each))


def _is_last(axes: object, read: torch.Tensor) -> bool:
    dimensions = list(axes) if isinstance(axes, (list, tuple)) else [axes]
    return dimensions in ([-1], [read.dim() - 1]) and isinstance(read.shape[-1], int)


def value(module: torch.nn.Module, node: object) -> torch.Tensor | None:
    """Return the tensor of a node of a graph, or None if it is computed."""
    import torch

    if not isinstance(node, torch.fx.Node) or node.op != "get_attr":
        return None
    part: object = module
    for name in str(node.target).split("."):
        part = getattr(part, name)
    return part if isinstance(part, torch.Tensor) else None


def add(module: torch.fx.GraphModule, name: str, tensor: torch.Tensor) -> torch.fx.Node:
    """Return a node for a constant, at the graph's place of insertion, or the existing one of this name and value.

    It is a parameter: where a layer reads a buffer's INT8 values, ExecuTorch keeps the fp32 values in the file too.

    Args:
        module: Gets the constant.
        name: Its dotted name. A number is added if another value has the name, and missing modules are
            added.
        tensor: Its value.
    """
    import torch

    home, _, last = name.rpartition(".")
    part: torch.nn.Module = module
    for step in filter(None, home.split(".")):
        if not hasattr(part, step):
            part.add_module(step, torch.nn.Module())
        part = getattr(part, step)
    free = (last, *(f"{last}_{number}" for number in range(1, len(module.graph.nodes) + 1)))
    last = next(n for n in free if not hasattr(part, n) or torch.equal(getattr(part, n), tensor))
    if not hasattr(part, last):
        part.register_parameter(last, _parameter(tensor.clone()))
    node = module.graph.get_attr(f"{home}.{last}".removeprefix("."))
    node.meta["val"] = tensor
    return node


def replace(module: torch.nn.Module, node: torch.fx.Node, tensor: torch.Tensor) -> None:
    """Change the value of a constant that only one node reads."""
    home, _, last = str(node.target).rpartition(".")
    setattr(module.get_submodule(home), last, _parameter(tensor))
    node.meta["val"] = tensor


def set_weights(module: torch.fx.GraphModule, layer: torch.fx.Node, weights: list[torch.Tensor]) -> None:
    """Give a layer another weight and bias, under new names if something else reads the old ones."""
    import torch

    home = str(layer.args[1].target).removesuffix(".weight")  # type: ignore[union-attr]  # get_attr
    read = Counter(n.target for n in module.graph.nodes if n.op == "get_attr" for _ in n.users)
    added = []
    for place, (kind, tensor) in enumerate(zip(("weight", "bias"), weights, strict=False), start=1):
        old = argument(layer, place)
        if isinstance(old, torch.fx.Node) and read[old.target] == 1:
            replace(module, old, tensor)
            added.append(old)
            continue
        with module.graph.inserting_before(layer):
            added.append(add(module, f"{home}.scaled_{layer.name}.{kind}", tensor))
    layer.args = (layer.args[0], *added, *layer.args[1 + len(added) :])


def argument(node: torch.fx.Node, place: int, default: Any = None) -> Any:
    """Return an argument by its place, or its default where the graph leaves it out."""
    return node.args[place] if len(node.args) > place else default


def is_dynamic(node: torch.fx.Node) -> bool:
    """Return whether a size of a tensor is not a number."""
    return any(not isinstance(size, int) for size in node.meta["val"].shape)


def _parameter(tensor: torch.Tensor) -> torch.nn.Parameter:
    import torch

    return torch.nn.Parameter(tensor.detach().contiguous(), requires_grad=False)


def simplify_views(module: torch.fx.GraphModule) -> PassResult:
    """Return a pass for ExecuTorch's `transform_passes`: squeezes to views, open sizes to -1, fewer permutations.

    XNNPACK takes a view with at most one size that it computes itself.
    """
    from executorch.exir.dialects._ops import ops
    from torch.fx.passes.infra.pass_base import PassResult

    aten = ops.edge.aten
    squeezes = (aten.squeeze_copy.dims, aten.squeeze_copy.dim, aten.unsqueeze_copy.default)
    for node in list(module.graph.nodes):
        if node.target is aten.expand_copy.default and (
            tuple(node.meta["val"].shape) == tuple(node.args[0].meta["val"].shape)
        ):
            node.replace_all_uses_with(node.args[0])
        elif node.target is aten.permute_copy.default and node.args[0].target is aten.permute_copy.default:
            first = node.args[0]
            node.args = (first.args[0], [first.args[1][axis] for axis in node.args[1]])
        elif node.target in (*squeezes, aten.view_copy.default):
            sizes = [size if isinstance(size, int) else -1 for size in node.meta["val"].shape]
            # One size may grow.
            if sizes and sizes.count(-1) <= 1:
                node.target, node.args = aten.view_copy.default, (node.args[0], sizes)
    module.graph.eliminate_dead_code()
    module.recompile()
    return PassResult(module, True)
