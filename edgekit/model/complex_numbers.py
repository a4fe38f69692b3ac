"""Complex numbers of a captured graph -> pairs of real ones, [..., 2]: few converters have operators of complex ones.

A graph is rewritten where all that it does with them is here: rotary positions as products, say. Any other (a Fourier
transform) is left as it is, for converters that have it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

    Operator = Callable[..., torch.Tensor]


def with_real_numbers(exported: torch.export.ExportedProgram) -> torch.fx.GraphModule | None:
    """The program as a module without complex numbers; None where it has none, or does more with them than is known."""
    nodes = [node for node in exported.graph.nodes if is_complex(node)]
    if not nodes or any(is_complex(node) for node in exported.graph.output_node().all_input_nodes):
        return None
    module = exported.module()
    known, paired = _operators(), set()
    for node in list(module.graph.nodes):
        reads = [given for given in node.all_input_nodes if given in paired]
        if node.op == "get_attr" and _complex_attribute(module, str(node.target)):
            paired.add(node)
        elif node.op == "call_function" and (reads or is_complex(node)):
            if node.target not in known or _has_number(node):
                return None
            operator, gives = known[node.target]
            flags = tuple(given in paired for given in node.all_input_nodes)
            node.kwargs = {**node.kwargs, "paired": flags}
            node.target = operator
            if gives:
                paired.add(node)
        elif reads and node.op != "output" and node.op != "call_module":
            return None
    for node in paired:
        if node.op == "get_attr":
            _as_pair(module, str(node.target))
    module.recompile()
    return module


def _has_number(node: torch.fx.Node) -> bool:
    """Whether an operator is given a number that pairs cannot be given."""
    import torch

    sums = (torch.ops.aten.add.Tensor, torch.ops.aten.sub.Tensor)
    kinds = (complex, int, float) if node.target in sums else complex
    return any(isinstance(given, kinds) for given in node.args)


def is_complex(node: torch.fx.Node) -> bool:
    """Whether a captured graph's node gives complex numbers."""
    import torch

    value = node.meta.get("val")
    return isinstance(value, torch.Tensor) and value.is_complex()


def _complex_attribute(module: torch.nn.Module, name: str) -> bool:
    import torch

    home, _, last = name.rpartition(".")
    value = getattr(module.get_submodule(home), last)
    return isinstance(value, torch.Tensor) and value.is_complex()


def _as_pair(module: torch.nn.Module, name: str) -> None:
    """Write a complex weight as a real one of its name."""
    import torch

    home, _, last = name.rpartition(".")
    part = module.get_submodule(home)
    value = getattr(part, last)
    if not value.is_complex():  # two nodes may read it
        return
    real = torch.view_as_real(value.detach()).contiguous()
    if isinstance(value, torch.nn.Parameter):
        setattr(part, last, torch.nn.Parameter(real, requires_grad=False))
    else:
        setattr(part, last, real)


def _operators() -> dict[Any, tuple[Operator, bool]]:
    """PyTorch's operators -> what computes them on pairs, and whether it gives pairs."""
    import torch

    aten = torch.ops.aten
    pairs: dict[Any, Operator] = {
        aten.slice.Tensor: _along(aten.slice.Tensor),
        aten.select.int: _along(aten.select.int),
        aten.unsqueeze.default: _along(aten.unsqueeze.default, added=1),
        aten.squeeze.dim: _along(aten.squeeze.dim),
        aten.view.default: _sized(aten.reshape.default, 2),
        aten.reshape.default: _sized(aten.reshape.default, 2),
        aten.expand.default: _sized(aten.expand.default, -1),
        aten.permute.default: _permuted,
        aten.numpy_T.default: lambda x, *, paired: _permuted(x, range(x.dim() - 2, -1, -1), paired=paired),
        aten.transpose.int: lambda x, one, other, *, paired: x.transpose(one % (x.dim() - 1), other % (x.dim() - 1)),
        aten.flatten.using_ints: _flattened,
        aten.cat.default: lambda all_of, axis=0, *, paired: torch.cat(list(all_of), axis % (all_of[0].dim() - 1)),
        aten.mul.Tensor: _product,
        aten.div.Tensor: _quotient,
        aten.add.Tensor: _total(1),
        aten.sub.Tensor: _total(-1),
        aten.neg.default: lambda x, *, paired: -x,
        aten._conj.default: lambda x, *, paired: torch.stack([x[..., 0], -x[..., 1]], -1),
        aten.complex.default: lambda real, imaginary, *, paired: torch.stack([real, imaginary], -1),
        aten.polar.default: lambda size, angle, *, paired: torch.stack([size * angle.cos(), size * angle.sin()], -1),
        **dict.fromkeys((aten.view_as_complex.default, aten.clone.default, aten.contiguous.default), _same),
        **dict.fromkeys((aten.resolve_conj.default, aten.detach.default, aten.alias.default), _same),
        aten.lift_fresh_copy.default: _same,
    }
    plain: dict[Any, Operator] = {
        aten.view_as_real.default: _same,
        aten.sym_size.int: lambda x, axis, *, paired: x.shape[axis % (x.dim() - 1)],
        aten.real.default: lambda x, *, paired: x[..., 0],
        aten.imag.default: lambda x, *, paired: x[..., 1],
        aten.abs.default: lambda x, *, paired: (x * x).sum(-1).sqrt(),
    }
    giving = {name: (operator, True) for name, operator in pairs.items()}
    return giving | {name: (operator, False) for name, operator in plain.items()}


def _along(operator: Operator, added: int = 0) -> Operator:
    """An operator whose second argument is an axis."""

    def on_pairs(x: torch.Tensor, axis: int = 0, *rest: Any, paired: Sequence[bool]) -> torch.Tensor:
        return operator(x, axis % (x.dim() - 1 + added), *rest)

    return on_pairs


def _sized(operator: Operator, last: int) -> Operator:
    """An operator whose second argument is a shape."""
    return lambda x, sizes, *, paired: operator(x, [*sizes, last])


def _same(x: torch.Tensor, *, paired: Sequence[bool], **_: Any) -> torch.Tensor:
    return x


def _permuted(x: torch.Tensor, axes: Sequence[int], *, paired: Sequence[bool]) -> torch.Tensor:
    return x.permute(*(axis % (x.dim() - 1) for axis in axes), x.dim() - 1)


def _flattened(x: torch.Tensor, start: int = 0, end: int = -1, *, paired: Sequence[bool]) -> torch.Tensor:
    return x.flatten(start % (x.dim() - 1), end % (x.dim() - 1))


def _product(a: Any, b: Any, *, paired: Sequence[bool]) -> torch.Tensor:
    import torch

    if isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor) and all(paired):
        (c, d), (e, f) = a.unbind(-1), b.unbind(-1)
        return torch.stack([c * e - d * f, c * f + d * e], -1)
    one, other = _widened(a, b, paired)
    return torch.mul(one, other)


def _quotient(a: torch.Tensor, b: Any, *, paired: Sequence[bool]) -> torch.Tensor:
    import torch

    if isinstance(b, torch.Tensor) and paired[-1]:
        inverse = torch.stack([b[..., 0], -b[..., 1]], -1) / (b * b).sum(-1, keepdim=True)
        return _product(a, inverse, paired=paired)
    one, other = _widened(a, b, paired)
    return torch.div(one, other)


def _total(sign: int) -> Operator:
    """A sum or a difference, of two tensors."""

    def on_pairs(a: torch.Tensor, b: torch.Tensor, *, paired: Sequence[bool], alpha: float = 1) -> torch.Tensor:
        import torch

        both = zip((a, b), (paired[0], paired[-1]), strict=True)
        one, other = (x if pair else torch.stack([x, torch.zeros_like(x)], -1) for x, pair in both)
        return one + sign * alpha * other

    return on_pairs


def _widened(a: Any, b: Any, paired: Sequence[bool]) -> tuple[Any, Any]:
    """A pair and a real factor, which belongs to both of its numbers."""
    import torch

    if not isinstance(a, torch.Tensor) or not isinstance(b, torch.Tensor):
        return a, b
    return (a, b.unsqueeze(-1)) if paired[0] else (a.unsqueeze(-1), b)
