"""Products in half precision or INT8 in a captured program, all else in fp32, for `torch-cuda` and `aoti`."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from edgekit.target import FP16, Option

if TYPE_CHECKING:
    import torch
    from torch.fx import Graph, Node

DTYPES = ("fp16", "bf16", "fp32")
LIMITS = {"fp16": FP16, "bf16": FP16}
"""Limits of a place, by precision."""
PRODUCTS = (
    "addbmm", "addmm", "baddbmm", "bmm", "chain_matmul", "conv1d", "conv2d", "conv3d", "conv_transpose1d",
    "conv_transpose2d", "conv_transpose3d", "convolution", "einsum", "gru", "linear", "lstm", "matmul", "mm", "mv",
    "prelu", "rnn_relu", "rnn_tanh", "scaled_dot_product_attention",
)  # fmt: skip
"""Operators that autocast computes in half precision on CUDA, by PyTorch's list."""
ATTENTION = "scaled_dot_product_attention"
MOVES = (
    "alias", "chunk", "clone", "contiguous", "expand", "expand_as", "flatten", "narrow", "permute", "reshape", "select",
    "slice", "split", "split_with_sizes", "squeeze", "t", "transpose", "unbind", "unflatten", "unsqueeze", "view",
)  # fmt: skip
"""Operators that only move values. Between two products they move half the bytes."""
LEVELS = 127
# Count of weights. A smaller layer costs more to round than it gains.
SMALLEST = 1 << 10
LEAST_STEP = 1e-30
"""Least scale of a row, so that a row of zeros stays one."""


def precision_option(default: str, *more: str) -> Option[str]:
    """Return the option of a target for these precisions, and for its further ones."""
    return Option(name="precision", default=default, choices=(*DTYPES, *more), help="of products and of their weights")


def to_half(exported: torch.export.ExportedProgram, precision: str) -> None:
    """Change a program in place so that its products compute in half precision. Inputs, outputs and all else stay fp32.

    The operators are those of PyTorch's automatic mixed precision
    (https://docs.pytorch.org/docs/2.13/amp.html#cuda-ops-that-can-autocast-to-float16). Here the casts are part of the
    program, so no caller can forget them. A weight that only products read is stored in half precision. One that
    another operator reads too, or that is moved first, stays in fp32 and is cast when it runs. The branches of
    `torch.cond` and similar operators stay in fp32.
    """
    import torch

    if precision == "fp32":
        return
    dtype = torch.float16 if precision == "fp16" else torch.bfloat16
    graph = exported.graph
    halves = _Halves(graph, dtype)
    for node in list(graph.nodes):
        if bool(getattr(getattr(node.target, "_schema", None), "is_mutable", False)):
            halves.forget()
        elif operator_name(node) in PRODUCTS and _is_float32(node):
            halves.compute(node)
    _store(exported, dtype)
    (out,) = (node for node in graph.nodes if node.op == "output")
    for spec, value in zip(exported.graph_signature.output_specs, out.args[0], strict=True):
        if hasattr(value, "name"):
            spec.arg.name = value.name
    graph.eliminate_dead_code()
    graph.lint()
    exported.graph_module.recompile()


class _Halves:
    """Half-precision twins of a graph's values, each made once and only where a product needs it."""

    def __init__(self, graph: torch.fx.Graph, dtype: torch.dtype) -> None:
        self._graph, self._dtype = graph, dtype
        self._twins: dict[Node, Node] = {}

    def compute(self, product: Node) -> None:
        """Give a product twins of its inputs. A reader of its answer gets it in fp32, or its twin."""
        import torch
        from torch.fx import map_arg

        with self._graph.inserting_before(product):
            if operator_name(product) == ATTENTION:
                self._keep_finite(product)
            product.args, product.kwargs = map_arg((product.args, product.kwargs), self._twin)
        _recast(product, self._dtype)
        for value in _values(product):
            with self._graph.inserting_after(value):
                widened = self._graph.call_function(torch.ops.aten.to.dtype, (value, torch.float32))
            _copy_meta(widened, value, torch.float32)
            value.replace_all_uses_with(widened, lambda user, own=widened: user is not own)  # type: ignore[misc]  # one argument
            self._twins[widened] = value

    def _keep_finite(self, attention: Node) -> None:
        """Bound a mask that is added to scores, since the least number of fp32 would become minus infinity."""
        import torch

        mask: Any = attention.kwargs.get("attn_mask", (*attention.args, None, None, None, None)[3])
        if mask is None or not _is_float32(mask):
            return
        bound = self._graph.call_function(torch.ops.aten.clamp.default, (mask, torch.finfo(self._dtype).min))
        _copy_meta(bound, mask, torch.float32)
        attention.replace_input_with(mask, bound)

    def forget(self) -> None:
        """Drop all twins, since an operator that writes in place may have changed their sources."""
        self._twins.clear()

    def _twin(self, node: Node) -> Node:
        """Return a value in half precision. Anything but fp32 is its own twin."""
        import torch

        if not _is_float32(node):
            return node
        if node not in self._twins:
            inputs = node.all_input_nodes
            if operator_name(node) in MOVES and inputs and self._has_twin(inputs[0]):
                twin = self._graph.node_copy(node, lambda value: self._twin(value) if value is inputs[0] else value)
            else:
                twin = self._graph.call_function(torch.ops.aten.to.dtype, (node, self._dtype))
            _copy_meta(twin, node, self._dtype)
            self._twins[node] = twin
        return self._twins[node]

    def _has_twin(self, node: Node) -> bool:
        """Return whether a twin exists, or only needs a move of one."""
        if node in self._twins:
            return node.op != "placeholder"
        return operator_name(node) in MOVES and bool(node.all_input_nodes) and self._has_twin(node.all_input_nodes[0])


def _store(exported: torch.export.ExportedProgram, dtype: torch.dtype) -> None:
    """Store weights that only products read in half precision, instead of a cast in each run."""
    import torch

    signature = exported.graph_signature
    names = {**signature.inputs_to_parameters, **signature.inputs_to_buffers}
    tensors = {**exported.state_dict, **exported.constants}
    for node in exported.graph.nodes:
        name = names.get(node.name) if node.op == "placeholder" else None
        if name is None or not node.users or not all(operator_name(user) == "to" for user in node.users):
            continue
        if any(user.args[1:] != (dtype,) for user in node.users) or not isinstance(tensors.get(name), torch.Tensor):
            continue
        for user in list(node.users):
            user.replace_all_uses_with(node)
            exported.graph.erase_node(user)
        _recast(node, dtype)
        state_dict = exported.state_dict if name in exported.state_dict else exported.constants
        half = tensors[name].detach().to(dtype)
        is_parameter = isinstance(tensors[name], torch.nn.Parameter)
        state_dict[name] = torch.nn.Parameter(half, requires_grad=False) if is_parameter else half


def _values(product: Node) -> tuple[Node, ...]:
    """Return the nodes that hold a product's tensors: itself, or those that take them from its tuple (an LSTM's)."""
    if not isinstance(product.meta["val"], tuple | list):
        return (product,)
    return tuple(user for user in product.users if user.target is operator.getitem)


def _recast(node: Node, dtype: torch.dtype) -> None:
    """Set another dtype for a node's tensors in its metadata."""
    import torch
    from torch.utils._pytree import tree_map_only

    node.meta["val"] = tree_map_only(torch.Tensor, lambda tensor: tensor.to(dtype), node.meta["val"])
    if node.op != "placeholder":
        for user in _values(node):
            if user is not node:
                _recast(user, dtype)


def _copy_meta(node: Node, like: Node, dtype: torch.dtype) -> None:
    node.meta["val"] = like.meta["val"].to(dtype)


def _is_float32(node: Node) -> bool:
    import torch

    value = node.meta.get("val")
    first = value[0] if isinstance(value, tuple | list) and value else value
    return isinstance(first, torch.Tensor) and first.dtype == torch.float32


def operator_name(node: Node) -> str:
    """Return an ATen operator's name without its overload. Empty for all else."""
    schema: Callable[..., Any] | str = node.target
    library, _, name = schema._schema.name.partition("::") if hasattr(schema, "_schema") else ("", "", "")
    return name if library == "aten" else ""


def to_int8(exported: torch.export.ExportedProgram) -> int:
    """Change a program in place so that its linear layers multiply in INT8, and return how many do.

    Weights are rounded once, with one scale per output channel. Each row of a layer's input is rounded when it runs, to
    a separate scale. Sums are exact in int32 where the processor has VNNI. torchao makes the same of a module's
    `nn.Linear` (Int8DynamicActivationInt8WeightConfig, https://docs.pytorch.org/ao/stable/). Here the layers are found
    in the program, where those of any module are one operator.
    """
    import torch

    signature = exported.graph_signature
    names = {**signature.inputs_to_parameters, **signature.inputs_to_buffers}
    layers = 0
    for placeholder in [node for node in exported.graph.nodes if node.op == "placeholder" and node.name in names]:
        weight = exported.state_dict.get(names[placeholder.name])
        users = list(placeholder.users)
        if weight is None or weight.dtype != torch.float32 or weight.dim() != 2 or weight.numel() < SMALLEST:
            continue
        if not users or not all(_is_layer(user, placeholder) for user in users):
            continue
        scale = _declare(
            exported,
            placeholder,
            f"{names[placeholder.name]}_scale",
            _round(exported, placeholder, names[placeholder.name]),
        )
        for user in users:
            _multiply(exported.graph, user, placeholder, scale)
        layers += len(users)
    exported.graph.lint()
    exported.graph_module.recompile()
    return layers


def _is_layer(node: Node, weight: Node) -> bool:
    rows: Any = node.args[0] if operator_name(node) == "linear" else None
    return rows is not None and rows is not weight and node.args[1] is weight and rows.meta["val"].dim() > 1


def _round(exported: torch.export.ExportedProgram, node: Node, name: str) -> torch.Tensor:
    """Store a weight [N, K] as integers, and return its scales, [N]."""
    import torch

    weight = exported.state_dict[name].detach()
    scale = weight.abs().amax(1) / LEVELS
    scale = torch.where(scale > 0, scale, torch.ones_like(scale))
    integers = torch.round(weight / scale[:, None]).to(torch.int8)
    exported.state_dict[name] = torch.nn.Parameter(integers, requires_grad=False)
    node.meta["val"] = node.meta["val"].to(torch.int8)
    return scale


def _declare(exported: torch.export.ExportedProgram, beside: Node, name: str, scale: torch.Tensor) -> Node:
    """Return a new parameter of the program, with a name derived from another one."""
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
    """Replace a linear layer with a product of integers."""
    import torch

    aten = torch.ops.aten

    def call(operator: Any, *arguments: Any) -> Any:
        return graph.call_function(operator, arguments)

    rows: Any = linear.args[0]
    bias = (*linear.args, None)[2]
    with graph.inserting_before(linear):
        # The magnitude of each row.
        largest = call(aten.amax.default, call(aten.abs.default, rows), [-1], True)
        step = call(aten.clamp.default, call(aten.div.Tensor, largest, LEVELS), LEAST_STEP)
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
