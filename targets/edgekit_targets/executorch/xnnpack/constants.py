"""Constants and arguments in a captured graph: what the passes for XNNPACK read and add."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

OWN = "_xnnpack_"
"""Begins the names of matrices that no weight was made of: they stay in fp32."""


def value(module: torch.nn.Module, node: object) -> torch.Tensor | None:
    """The tensor that a node of a graph stands for; None where it is computed."""
    import torch

    if not isinstance(node, torch.fx.Node) or node.op != "get_attr":
        return None
    part: object = module
    for name in str(node.target).split("."):
        part = getattr(part, name)
    return part if isinstance(part, torch.Tensor) else None


def add(module: torch.fx.GraphModule, name: str, tensor: torch.Tensor) -> torch.fx.Node:
    """A node for a constant, at the graph's place of insertion; one of this name and value is taken again.

    It is a parameter: of a buffer whose INT8 values a layer reads ExecuTorch keeps the fp32 values in the file too.

    Args:
        module: Gets the constant.
        name: Its dotted name, to which a number is added where another value has it; modules that are not there are
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
    """Another value for a constant that one node stands for."""
    home, _, last = str(node.target).rpartition(".")
    setattr(module.get_submodule(home), last, _parameter(tensor))
    node.meta["val"] = tensor


def set_weights(module: torch.fx.GraphModule, layer: torch.fx.Node, weights: list[torch.Tensor]) -> None:
    """Give a layer another weight and bias: under its own names, or beside them where something else reads those."""
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
    """An argument by its place, or its default where the graph leaves it out."""
    return node.args[place] if len(node.args) > place else default


def is_dynamic(node: torch.fx.Node) -> bool:
    """Whether a size of a tensor is not a number."""
    return any(not isinstance(size, int) for size in node.meta["val"].shape)


def _parameter(tensor: torch.Tensor) -> torch.nn.Parameter:
    import torch

    return torch.nn.Parameter(tensor.detach().contiguous(), requires_grad=False)
