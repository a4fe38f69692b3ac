from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from edgekit.runtime.logs import silent
from edgekit_targets.executorch.xnnpack_passes import simplify_views
from tests.targets.captured import Parts, exported


def test_views_have_numbers_and_two_permutations_are_one() -> None:
    pytest.importorskip("executorch", reason="no ExecuTorch: pip install -e '.[executorch]'")
    with silent():
        from executorch.exir import to_edge_transform_and_lower

    def formula(_: nn.ModuleList, x: Tensor) -> Tensor:
        y = x.reshape(-1, 6, 2).permute(1, 0, 2).permute(2, 1, 0).permute(1, 2, 0).squeeze(-3)
        return y.unsqueeze(1).expand(x.shape[0], 1, 6, 2).reshape(x.shape[0], 12)

    with silent():
        edge = to_edge_transform_and_lower(exported(Parts(formula), 12), [simplify_views])
    graph = edge.exported_program().graph_module
    names = [node.target.__name__ for node in graph.graph.nodes if node.op == "call_function"]
    assert [name for name in names if "sym" not in name] == [
        "aten.view_copy.default",
        "aten.permute_copy.default",
        *["aten.view_copy.default"] * 3,
    ]
    views = [n for n in graph.graph.nodes if n.op == "call_function" and "view" in n.target.__name__]
    assert all(isinstance(size, int) for node in views for size in node.args[1])
    x = torch.rand(3, 12)
    torch.testing.assert_close(graph(x)[0], Parts(formula)(x))
