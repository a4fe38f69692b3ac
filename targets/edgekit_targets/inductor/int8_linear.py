"""Linear layers in INT8 in a captured program, all else in fp32: what `aoti` compiles for `-O aoti.precision=int8`.

Weights are rounded once, a scale an output channel; each row of a layer's input is rounded when it runs, to a scale of
its own. Sums are exact in int32 where the processor has VNNI. torchao makes the same of a module's `nn.Linear`
(Int8DynamicActivationInt8WeightConfig, https://docs.pytorch.org/ao/stable/); here the layers are found in the program,
where those of any module are one operator.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from edgekit_targets.inductor.half import operator_name

if TYPE_CHECKING:
    import torch
    from torch.fx import Graph, Node

LEVELS = 127
SMALLEST = 1 << 10  # weights: a smaller layer costs more to round than it gains
LEAST_STEP = 1e-30
"""Of a row's scale: a row of zeros stays one."""


def to_int8(exported: torch.export.ExportedProgram) -> int:
    """Let a program's linear layers multiply in INT8, in its place; returns how many do."""
    import torch

    signature = exported.graph_signature
    names = {**signature.inputs_to_parameters, **signature.inputs_to_buffers}
    layers = 0
    for held in [node for node in exported.graph.nodes if node.op == "placeholder" and node.name in names]:
        weight = exported.state_dict.get(names[held.name])
        users = list(held.users)
        if weight is None or weight.dtype != torch.float32 or weight.dim() != 2 or weight.numel() < SMALLEST:
            continue
        if not users or not all(_is_layer(user, held) for user in users):
            continue
        scale = _declared(exported, held, f"{names[held.name]}_scale", _round(exported, held, names[held.name]))
        for user in users:
            _multiply(exported.graph, user, held, scale)
        layers += len(users)
    exported.graph.lint()
    exported.graph_module.recompile()
    return layers


def _is_layer(node: Node, weight: Node) -> bool:
    rows: Any = node.args[0] if operator_name(node) == "linear" else None
    return rows is not None and rows is not weight and node.args[1] is weight and rows.meta["val"].dim() > 1


def _round(exported: torch.export.ExportedProgram, held: Node, name: str) -> torch.Tensor:
    """Store a weight [N, K] as integers; its scales, [N]."""
    import torch

    weight = exported.state_dict[name].detach()
    scale = weight.abs().amax(1) / LEVELS
    scale = torch.where(scale > 0, scale, torch.ones_like(scale))
    integers = torch.round(weight / scale[:, None]).to(torch.int8)
    exported.state_dict[name] = torch.nn.Parameter(integers, requires_grad=False)
    held.meta["val"] = held.meta["val"].to(torch.int8)
    return scale


def _declared(exported: torch.export.ExportedProgram, beside: Node, name: str, scale: torch.Tensor) -> Node:
    """A parameter of the program beside another one."""
    import torch
    from torch.export.graph_signature import InputKind, InputSpec, TensorArgument

    with exported.graph.inserting_before(beside):
        node: Node = exported.graph.placeholder(f"{beside.name}_scale")
    node.meta["val"] = beside.meta["val"].amax(1).to(torch.float32)
    specs = exported.graph_signature.input_specs
    number = next(n for n, spec in enumerate(specs) if getattr(spec.arg, "name", "") == beside.name)
    specs.insert(number, InputSpec(InputKind.PARAMETER, TensorArgument(name=node.name), target=name))
    exported.state_dict[name] = torch.nn.Parameter(scale, requires_grad=False)
    return node


def _multiply(graph: Graph, linear: Node, weight: Node, scale: Node) -> None:
    """Put a product of integers in the place of a linear layer."""
    import torch

    aten = torch.ops.aten

    def call(operator: Any, *arguments: Any) -> Any:
        return graph.call_function(operator, arguments)

    rows: Any = linear.args[0]
    bias = (*linear.args, None)[2]
    with graph.inserting_before(linear):
        step = call(aten.clamp.default, call(aten.div.Tensor, _largest(graph, rows), LEVELS), LEAST_STEP)
        rounded = call(aten.to.dtype, call(aten.round.default, call(aten.div.Tensor, rows, step)), torch.int8)
        flat = call(aten.flatten.using_ints, rounded, 0, -2)
        sums = call(aten._int_mm.default, flat, call(aten.t.default, weight))
        leading = [call(aten.sym_size.int, rows, d) for d in range(rows.meta["val"].dim() - 1)]
        shaped = call(aten.reshape.default, sums, [*leading, linear.meta["val"].shape[-1]])
        answer = call(aten.mul.Tensor, call(aten.mul.Tensor, call(aten.to.dtype, shaped, torch.float32), step), scale)
        if bias is not None:
            answer = call(aten.add.Tensor, answer, bias)
    answer.meta = linear.meta
    linear.replace_all_uses_with(answer)
    graph.erase_node(linear)


def _largest(graph: Graph, rows: Node) -> Node:
    """The largest magnitude of each row."""
    import torch

    magnitudes: Node = graph.call_function(torch.ops.aten.abs.default, (rows,))
    largest: Node = graph.call_function(torch.ops.aten.amax.default, (magnitudes, [-1], True))
    return largest
