"""What ExecuTorch 1.4 and XNNPACK get wrong of a captured graph, written with operators that they get right.

Each was found with a module that nobody here wrote; `tests/targets/executorch/test_graph.py` has the smallest one.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from edgekit.errors import ExportError
from edgekit.model.decompositions import along_channels, drop_detach, prelu_of_any_rank

if TYPE_CHECKING:
    import torch

PICTURE = 4  # dimensions
PART = "part_"
"""Comes before names that begin with a number."""
GROWING = ("expand", "repeat", "repeat_interleave")
"""Operators of constants that stay in the graph: what they make is larger than what they read."""


def apply_workarounds(name: str, exported: torch.export.ExportedProgram) -> torch.fx.GraphModule:
    """Return the program of a model as a module in the operators that ExecuTorch gets right.

    Raises:
        ExportError: If it holds no graph.
    """
    import torch

    if any(node.target is torch.ops.aten.gru.input for node in exported.graph.nodes):
        from torch._decomp import get_decompositions

        exported = exported.run_decompositions(get_decompositions((torch.ops.aten.gru.input,)))  # its gates are split
    module = exported.module()
    if not isinstance(module, torch.fx.GraphModule):
        raise ExportError(f"the program of '{name}' holds no graph: run `edgekit export` again")
    drop_detach(module)
    write_out_attention(module)
    write_out_prelu(module)
    write_out_splits(module)
    write_out_convolutions(module)
    say_strides(module)
    keep_float(module)
    allow_copies(module)
    fold_constants(module)
    module.recompile()
    return module


def write_out_attention(module: torch.fx.GraphModule) -> None:
    """As three operators that XNNPACK has, where nothing masks it.

    PyTorch's own decomposition guards against rows that a mask empties, six operators per block that XNNPACK lacks.
    """
    import torch

    attention = torch.ops.aten.scaled_dot_product_attention.default
    for node in module.graph.nodes:
        if node.target is attention and len(node.args) == 3 and set(node.kwargs) <= {"scale"}:
            query, key, value = (a.meta["val"].shape for a in node.args)
            if query[:-2] == key[:-2] == value[:-2]:
                node.target = _attention
    module.recompile()


def write_out_prelu(module: torch.fx.GraphModule) -> None:
    """Of what is not a picture: XNNPACK takes it and then cannot lay it out."""
    import torch

    for node in module.graph.nodes:
        if node.target is not torch.ops.aten.prelu.default or (axes := node.args[0].meta["val"].dim()) == PICTURE:
            continue
        slopes = node.args[1]
        if slopes.meta["val"].numel() > 1:
            arguments = (slopes, along_channels(axes))
            with module.graph.inserting_before(node):
                slopes = module.graph.call_function(torch.ops.aten.reshape.default, arguments)
        node.target, node.args = prelu_of_any_rank, (node.args[0], slopes)


def write_out_splits(module: torch.fx.GraphModule) -> None:
    """As slices: while it checks an operator that gives a list, ExecuTorch fixes a first axis that is dynamic.

    It takes the length of the first tensor for that of the list (`exir/verification/arg_validator.py`), and the
    example's batch becomes the only one.
    """
    import torch

    aten = torch.ops.aten
    splits = {aten.chunk.default: _chunks, aten.split.Tensor: _pieces, aten.split_with_sizes.default: _parts}
    splits |= {aten.split.sizes: _parts, aten.unbind.int: _rows}
    for node in module.graph.nodes:
        node.target = splits.get(node.target, node.target)


def write_out_convolutions(module: torch.fx.GraphModule) -> None:
    """Three-dimensional ones as two-dimensional: ExecuTorch's convolution takes no five dimensions."""
    import torch

    aten = torch.ops.aten
    for node in module.graph.nodes:
        if node.target is not aten.conv3d.default:
            continue
        depth = node.args[1].meta["val"].shape[2]
        with module.graph.inserting_before(node):
            flat = module.graph.call_function(aten.flatten.using_ints, (node.args[1], 1, 2))
        node.args = (node.args[0], flat, *node.args[2:])
        node.kwargs = {**node.kwargs, "depth": depth}
        node.target = _frames


def say_strides(module: torch.fx.GraphModule) -> None:
    """XNNPACK reads a pool's stride where PyTorch leaves it out: it is the kernel's size."""
    import torch

    for node in module.graph.nodes:
        if node.target is torch.ops.aten.max_pool2d.default and (len(node.args) < 3 or not node.args[2]):
            node.args = (*node.args[:2], node.args[1], *node.args[3:])


def keep_float(module: torch.fx.GraphModule) -> None:
    """What XNNPACK takes for an operator of INT8, since what follows rounds it, and cannot compute as one.

    Where the batch grows, its mean writes beyond its memory; a product is refused where the scales lie too far apart.
    A clamp in between, to what the rounding can hold, changes nothing else.
    """
    import torch

    aten = torch.ops.aten
    for node in list(module.graph.nodes):
        if not str(node.target).startswith("quantized_decomposed.quantize_per_tensor"):
            continue
        x, scale, zero, low, high = node.args[:5]
        if x.target in means() or (x.target is aten.mul.Tensor and not _fits(x, scale)):
            arguments = (x, scale * (low - zero), scale * (high - zero))
            with module.graph.inserting_before(node):
                clamp = module.graph.call_function(aten.clamp.default, arguments)
            clamp.meta = dict(x.meta)
            node.replace_input_with(x, clamp)


def means() -> tuple[torch._ops.OpOverload, ...]:
    """Return the operators that XNNPACK may take for its INT8 mean."""
    import torch

    aten = torch.ops.aten
    return aten.mean.dim, aten.mean.default, aten.adaptive_avg_pool2d.default


def _fits(product: torch.fx.Node, scale: float) -> bool:
    """Return whether XNNPACK can multiply these in INT8 (`xnn_define_binary` has the limits)."""
    all_input_nodes = product.all_input_nodes
    rounded = [n for n in all_input_nodes if str(n.target).startswith("quantized_decomposed.dequantize_per_tensor")]
    scales = [float(str(n.args[1])) for n in rounded]
    return len(scales) != len(product.args) or 2**-16 <= scales[0] * scales[-1] / scale < 2**8


def allow_copies(module: torch.fx.GraphModule) -> None:
    """Where a view reads what attention gave: its decomposition lays memory out otherwise, and the view is none."""
    import torch

    aten = torch.ops.aten
    for node in module.graph.nodes:
        if node.target is not aten.scaled_dot_product_attention.default:
            continue
        views = [user for user in _laid_out(node) if user.target is aten.view.default]
        for view in views:
            view.target = aten.reshape.default
        if views:
            with module.graph.inserting_after(node):
                copy = module.graph.call_function(aten.clone.default, (node,))
            node.replace_all_uses_with(copy, delete_user_cb=lambda user, copy=copy: user is not copy)
            copy.kwargs = {"memory_format": torch.contiguous_format}


def _laid_out(node: torch.fx.Node) -> Iterator[torch.fx.Node]:
    """What follows a node by operators that only lay it out otherwise."""
    import torch

    aten = torch.ops.aten
    kinds = {aten.view.default, aten.reshape.default, aten.transpose.int, aten.permute.default, aten.contiguous.default}
    for user in node.users:
        if user.target in kinds:
            yield user
            yield from _laid_out(user)


def fold_constants(module: torch.fx.GraphModule) -> None:
    """Compute what depends on weights alone.

    XNNPACK runs such operators too, and where the batch grows it then writes beyond its memory: a wrong answer, or the
    end of the process.
    """
    import torch

    tensors: dict[torch.fx.Node, torch.Tensor] = {}
    with torch.no_grad():
        for node in list(module.graph.nodes):
            value = attrgetter(str(node.target))(module) if node.op == "get_attr" else None
            if isinstance(value, torch.Tensor):
                tensors[node] = value
            elif constants := _constant(node, tensors):
                result = node.target(*constants[0], **constants[1])
                if not isinstance(result, torch.Tensor):
                    continue
                name = f"_constant_{node.name}"
                module.register_buffer(name, result.detach().clone(memory_format=torch.contiguous_format))
                with module.graph.inserting_before(node):
                    constant = module.graph.get_attr(name)
                constant.meta = dict(node.meta)
                node.replace_all_uses_with(constant)
                module.graph.erase_node(node)
                tensors[constant] = getattr(module, name)
    module.graph.eliminate_dead_code()
    # Weights that only constants were made of.
    used = {str(node.target) for node in module.graph.nodes if node.op == "get_attr"}
    for name in [n for n, _ in (*module.named_parameters(), *module.named_buffers()) if n not in used]:
        home, _, last = name.rpartition(".")
        delattr(module.get_submodule(home), last)


def name_parts(exported: torch.export.ExportedProgram) -> None:
    """XNNPACK's pass for batch norms names weights after modules, which in a Sequential have numbers for names."""
    for declared in exported.graph_signature.input_specs:
        if declared.target and declared.target[0].isdigit():
            old, declared.target = declared.target, PART + declared.target
            for tensors in (exported.state_dict, exported.constants):
                if old in tensors:
                    tensors[declared.target] = tensors[old]
    for tensors in (exported.state_dict, exported.constants):
        for name in [name for name in tensors if name[0].isdigit()]:
            del tensors[name]


def _constant(node: torch.fx.Node, tensors: dict[torch.fx.Node, torch.Tensor]) -> tuple[Any, Any] | None:
    """Arguments of an operator of PyTorch's all of whose tensors are known; None for others."""
    import torch

    target = node.target
    if not isinstance(target, torch._ops.OpOverload) or target.namespace != "aten" or target._schema.is_mutable:
        return None
    if not node.all_input_nodes or not set(node.all_input_nodes) <= tensors.keys():
        return None
    if target._schema.name.removeprefix("aten::") in GROWING or torch.Tag.nondeterministic_seeded in target.tags:
        return None
    return torch.fx.node.map_arg((node.args, node.kwargs), lambda x: tensors[x])


def _attention(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, scale: float | None = None) -> torch.Tensor:
    """`softmax(q k^T / sqrt(d)) v` over [..., N, d]."""
    import torch

    scale = 1.0 / math.sqrt(query.shape[-1]) if scale is None else scale
    q, k, v = (t.reshape(-1, t.shape[-2], t.shape[-1]) for t in (query, key.transpose(-2, -1), value))
    weights = torch.softmax(torch.bmm(q * scale, k), -1)
    return torch.bmm(weights, v).reshape(query.shape[:-1] + value.shape[-1:])


def _chunks(x: torch.Tensor, chunks: int, dim: int = 0) -> list[torch.Tensor]:
    return _pieces(x, -(-x.shape[dim] // chunks), dim)


def _pieces(x: torch.Tensor, size: int, dim: int = 0) -> list[torch.Tensor]:
    whole = x.shape[dim]
    return [x.narrow(dim, start, min(size, whole - start)) for start in range(0, whole, size)]


def _parts(x: torch.Tensor, sizes: list[int], dim: int = 0) -> list[torch.Tensor]:
    return [x.narrow(dim, sum(sizes[:number]), size) for number, size in enumerate(sizes)]


def _rows(x: torch.Tensor, dim: int = 0) -> list[torch.Tensor]:
    return [x.select(dim, number) for number in range(x.shape[dim])]


def _frames(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
    *,
    depth: int,
) -> torch.Tensor:
    """Return a convolution over [N, C, D, H, W] as one over N x D' pictures whose channels are those of `depth` frames.

    Args:
        x: What it reads.
        weight: [O, C / groups * depth, kh, kw].
        bias: [O].
        stride: One number, or three.
        padding: One number, or three.
        dilation: One number, or three.
        groups: As in PyTorch.
        depth: The kernel's size along D.
    """
    import torch

    sizes = (tuple(value) if isinstance(value, (tuple, list)) else (value,) for value in (stride, padding, dilation))
    steps, around, apart = (value * 3 if len(value) == 1 else value for value in sizes)
    x = torch.nn.functional.pad(x, (0, 0, 0, 0, around[0], around[0])) if around[0] else x
    count = (x.shape[2] - apart[0] * (depth - 1) - 1) // steps[0] + 1
    seen = (count - 1) * steps[0] + 1
    frames = torch.stack([x[:, :, n * apart[0] : n * apart[0] + seen : steps[0]] for n in range(depth)], 2)
    batch, channels, _, _, height, width = frames.shape
    flat = frames.permute(0, 3, 1, 2, 4, 5).reshape(batch * count, channels * depth, height, width)
    answer = torch.nn.functional.conv2d(flat, weight, bias, steps[1:], around[1:], apart[1:], groups)
    return answer.reshape(batch, count, *answer.shape[1:]).transpose(1, 2)
