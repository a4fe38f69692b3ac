"""`torch.cond`: taken as an example, captured, and computed on both sides for targets without branches."""

from __future__ import annotations

import pytest
import torch

from edgekit.model.conditions import select_branches
from edgekit.model.graph import capture
from edgekit.pipeline.given_model import resolve_model
from edgekit.pipeline.request import ModelFacts


class Nested(torch.nn.Module):
    """Two outputs, a condition in a branch, a predicate of one element, and nodes after it."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.a, self.b, self.c = torch.nn.Linear(6, 6), torch.nn.Linear(6, 6), torch.nn.Linear(6, 3)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        def above(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            inner = torch.cond(x.max() > 1, lambda x: self.a(x).relu(), lambda x: self.a(x) * 2, (x,))
            return inner, x + 1

        def below(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return self.b(x), x - 1

        y, z = torch.cond(x.mean(dim=(0, 1)).reshape(1) > 0, above, below, (x,))
        return self.c(y + z), z


def test_both_branches_are_computed_and_selected() -> None:
    module = Nested().eval()
    program = capture(resolve_model(module, torch.randn(2, 6), ModelFacts())).exported
    assert any("cond" in str(node.target) for node in program.graph.nodes)
    graph = select_branches(program).module()
    for part in graph.modules():
        if isinstance(part, torch.fx.GraphModule):
            assert not any(node.target is torch.ops.higher_order.cond for node in part.graph.nodes)
    rows = torch.linspace(-1, 1, 12).reshape(2, 6)
    with torch.no_grad():
        for shift in (-3.0, 0.1, 3.0):
            for value, expected in zip(graph(rows + shift), module(rows + shift), strict=True):
                torch.testing.assert_close(value, expected)


@pytest.mark.parametrize("rows", [1, 4])
def test_an_artifact_without_branches_keeps_the_batch_open(rows: int) -> None:
    module = Nested().eval()
    program = capture(resolve_model(module, torch.randn(2, 6), ModelFacts())).exported
    assert [tuple(value.shape) for value in select_branches(program).module()(torch.zeros(rows, 6))] == [
        (rows, 3),
        (rows, 6),
    ]
