"""Rewrites of parts of a captured graph that ExecuTorch 1.4 and XNNPACK get wrong.

A module from outside edgekit showed each error. `tests/targets/executorch/test_graph.py` has the smallest ones.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from edgekit.errors import ExportError
from edgekit.model.decompositions import along_channels, drop_detach, prelu_of_any_rank, remainder, searches

if TYPE_CHECKING:
    import torch

# Count of dimensions.
PICTURE = 4
PART = "part_"
"""Prefix for names that begin with a number."""
GROWING = ("expand", "repeat", "repeat_interleave")
"""Operators of constants that stay in the graph, since their results are larger than their inputs."""


def apply_workarounds(name: str, exported: torch.export.ExportedProgram) -> torch.fx.GraphModule:
    """Return the program of a model as a module with operators that ExecuTorch gets right.

    Raises:
        ExportError: If the program holds no graph.
    """
    import torch

    if any(node.target is torch.ops.aten.gru.input for node in exported.graph.nodes):
        from torch._decomp import get_decompositions

        # A GRU's gates are split.
        exported = exported.run_decompositions(get_decompositions((torch.ops.aten.gru.input,)))
    module = exported.module()
    if not isinstance(module, torch.fx.GraphModule):
        raise ExportError(f"the program of '{name}' holds no graph. Run `edgekit export` again")
    drop_detach(module)
    write_out_attention(module)
    write_out_prelu(module)
    write_out_operators(module)
    write_out_remainders(module)
    write_out_convolutions(module)
    say_strides(module)
    keep_float(module)
    allow_copies(module)
    fold_constants(module)
    module.recompile()
    return module


def write_out_attention(module: torch.fx.GraphModule) -> None:
    """Replace unmasked attention with three operators that XNNPACK has.

    PyTorch's own decomposition guards against rows that a mask empties, with six operators per block that XNNPACK
    lacks.
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
    """Rewrite PReLU of anything but pictures, since XNNPACK accepts it and then cannot lay it out."""
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


def write_out_operators(module: torch.fx.GraphModule) -> None:
    """Replace splits with slices, and searches in sorted values, which ExecuTorch lacks, with comparisons.

    While it checks an operator that returns a list, ExecuTorch fixes a dynamic first axis. It takes the length of the
    first tensor as the length of the list (`exir/verification/arg_validator.py`), so only the example's batch works.
    """
    import torch

    aten = torch.ops.aten
    replacements = {
        aten.chunk.default: _chunks,
        aten.split.Tensor: _pieces,
        aten.split_with_sizes.default: _parts,
        aten.split.sizes: _parts,
        aten.unbind.int: _rows,
        **searches(),
    }
    for node in module.graph.nodes:
        node.target = replacements.get(node.target, node.target)


def write_out_remainders(module: torch.fx.GraphModule) -> None:
    """Replace remainders of integers: ExecuTorch gives them the sign of the dividend, not of the divisor."""
    import torch

    aten = torch.ops.aten
    for node in module.graph.nodes:
        if node.target in (aten.remainder.Tensor, aten.remainder.Scalar) and not node.meta["val"].is_floating_point():
            node.target = remainder


def write_out_convolutions(module: torch.fx.GraphModule) -> None:
    """Replace three-dimensional convolutions with two-dimensional ones, since ExecuTorch's takes no five dimensions."""
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
    """Write a pool's stride, which PyTorch leaves out where it is the kernel's size, and which XNNPACK reads."""
    import torch

    for node in module.graph.nodes:
        if node.target is torch.ops.aten.max_pool2d.default and (len(node.args) < 3 or not node.args[2]):
            node.args = (*node.args[:2], node.args[1], *node.args[3:])


def keep_float(module: torch.fx.GraphModule) -> None:
    """Separate operators from a later rounding where XNNPACK would run them in INT8 and cannot.

    Where the batch grows, its INT8 mean writes beyond its memory. It refuses a product whose scales lie too far apart.
    A clamp in between, to the range of the rounding, changes nothing else.
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
    """Return the operators that XNNPACK may run as its INT8 mean."""
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
    """Copy attention's result before a view reads it, since its decomposition has another memory layout."""
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
    """Yield the users of a node, past operators that only change its layout."""
    import torch

    aten = torch.ops.aten
    kinds = {aten.view.default, aten.reshape.default, aten.transpose.int, aten.permute.default, aten.contiguous.default}
    for user in node.users:
        if user.target in kinds:
            yield user
            yield from _laid_out(user)


def fold_constants(module: torch.fx.GraphModule) -> None:
    """Compute the values that depend only on weights.

    XNNPACK runs such operators too. Where the batch grows, it then writes beyond its memory, which gives a wrong answer
    or ends the process.
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
    # Remove weights that were only read to make constants.
    used = {str(node.target) for node in module.graph.nodes if node.op == "get_attr"}
    for name in [n for n, _ in (*module.named_parameters(), *module.named_buffers()) if n not in used]:
        home, _, last = name.rpartition(".")
        delattr(module.get_submodule(home), last)


def name_parts(exported: torch.export.ExportedProgram) -> None:
    """Rename modules whose names are numbers, as in a Sequential, since XNNPACK names weights after them."""
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
    """Return the arguments of a PyTorch operator if all of its tensors are known, else None."""
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
    """Return `softmax(q k^T / sqrt(d)) v` over [..., N, d]."""
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
    """Return a convolution over [N, C, D, H, W] as one over N x D' pictures.

    The channels of a picture are those of `depth` frames.

    Args:
        x: Its input.
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
