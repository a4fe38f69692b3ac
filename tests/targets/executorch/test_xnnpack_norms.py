from __future__ import annotations

import torch
from torch import Tensor, nn

from edgekit_targets.executorch.xnnpack_passes import fold_norms
from tests.targets.captured import Parts, rewritten


def layers() -> tuple[nn.Module, ...]:
    torch.manual_seed(0)
    made = (nn.Linear(8, 6), nn.LayerNorm(8), nn.Linear(8, 4, bias=False))
    for parameter in made[1].parameters():
        nn.init.normal_(parameter)
    return made


def test_the_slopes_of_a_norm_go_into_the_layers_that_read_it() -> None:
    def formula(parts: nn.ModuleList, x: Tensor) -> Tensor:
        y = parts[1](x)
        return torch.cat([parts[0](y), parts[2](y)], -1)

    made = rewritten(fold_norms, Parts(formula, *layers()), 5, 8)
    (norm,) = (node for node in made.graph.nodes if node.target is torch.ops.aten.layer_norm.default)
    assert norm.args[2:4] in ((), (None, None))


def test_a_norm_that_is_read_otherwise_too_keeps_them() -> None:
    made = rewritten(fold_norms, Parts(lambda parts, x: parts[0](y := parts[1](x)).sum() + y, *layers()), 5, 8)
    (norm,) = (node for node in made.graph.nodes if node.target is torch.ops.aten.layer_norm.default)
    assert all(isinstance(slopes, torch.fx.Node) for slopes in norm.args[2:4])


def test_a_layer_that_is_called_twice_keeps_its_weights() -> None:
    rewritten(fold_norms, Parts(lambda parts, x: parts[0](parts[1](x)) + parts[0](x), *layers()), 5, 8)
