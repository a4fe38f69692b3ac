"""Small modules as captured graphs with an open batch: what the tests of graph rewrites share."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from edgekit.model.graph import quiet

BATCHES = (1, 2, 3)
Formula = Callable[[nn.ModuleList, Tensor], Tensor]


class Parts(nn.Module):
    """Layers, and a formula of them and the input."""

    def __init__(self, formula: Formula, *layers: nn.Module) -> None:
        super().__init__()
        self.formula, self.layers = formula, nn.ModuleList(layers)
        self.gain = nn.Parameter(torch.linspace(-1, 1, 8))

    def forward(self, x: Tensor) -> Tensor:
        return self.formula(self.layers, x)


def exported(module: nn.Module, *shape: int) -> torch.export.ExportedProgram:
    """Captured with an open batch; `shape` is that of one sample."""
    axes = {0: torch.export.Dim.DYNAMIC}
    with quiet():
        return torch.export.export(module, (torch.rand(2, *shape),), dynamic_shapes=(axes,))


def rewritten(rewrite: Callable[[torch.fx.GraphModule], None], module: nn.Module, *shape: int) -> torch.fx.GraphModule:
    """The graph of a module after a rewrite, which answers as the module does for every batch."""
    graph = exported(module.eval(), *shape).module()
    assert isinstance(graph, torch.fx.GraphModule)
    rewrite(graph)
    graph.recompile()
    again = exported(graph, *shape).module()
    assert isinstance(again, torch.fx.GraphModule)
    assert_same(module, again, *shape)
    return again


def targets(module: torch.fx.GraphModule) -> list[str]:
    """Names of a graph's operators, in order, without their overloads: `linear`, `slice`, ..."""
    operators = (n.target for n in module.graph.nodes if isinstance(n.target, torch._ops.OpOverload))
    return [operator._schema.name.removeprefix("aten::") for operator in operators]


def assert_same(module: nn.Module, made: nn.Module, *shape: int) -> None:
    with torch.no_grad():
        for batch in BATCHES:
            x = torch.rand(batch, *shape, generator=torch.Generator().manual_seed(batch)) - 0.5
            torch.testing.assert_close(made(x), module(x), rtol=1e-4, atol=1e-5)
