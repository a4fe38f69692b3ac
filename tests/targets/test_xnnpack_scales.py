from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from edgekit_targets._xnnpack.scales import fold_scales
from tests.targets.captured import Formula, Parts, rewritten, targets


def layers() -> tuple[nn.Module, ...]:
    torch.manual_seed(0)
    made = (nn.Linear(8, 6), nn.LayerNorm(8), nn.Linear(8, 4, bias=False))
    for parameter in made[1].parameters():
        nn.init.normal_(parameter)
    return made


@pytest.mark.parametrize(
    ("formula", "calculations"),
    [
        (lambda parts, x: (parts[0](x) / 4).relu(), 0),
        (lambda parts, x: (parts[0](x).reshape(-1, 5, 3, 2).transpose(1, 2) * 0.5).relu(), 0),
        (lambda parts, x: (parts[0](x) * parts.get_parameter("1.weight")[:6]).relu(), 1),
        (lambda parts, x: (y := parts[0](x)) * 0.5 + y, 2),
    ],
)
def test_a_number_behind_a_linear_layer(formula: Formula, calculations: int) -> None:
    made = targets(rewritten(fold_scales, Parts(formula, *layers()), 5, 8))
    assert sum(name in ("mul", "div", "add") for name in made) == calculations


def test_the_slopes_of_a_norm_go_into_the_layers_that_read_it() -> None:
    def formula(parts: nn.ModuleList, x: Tensor) -> Tensor:
        y = parts[1](x)
        return torch.cat([parts[0](y), parts[2](y)], -1)

    made = rewritten(fold_scales, Parts(formula, *layers()), 5, 8)
    (norm,) = (node for node in made.graph.nodes if node.target is torch.ops.aten.layer_norm.default)
    assert norm.args[2:4] in ((), (None, None))


def test_a_norm_that_is_read_otherwise_too_keeps_them() -> None:
    made = rewritten(fold_scales, Parts(lambda parts, x: parts[0](y := parts[1](x)).sum() + y, *layers()), 5, 8)
    (norm,) = (node for node in made.graph.nodes if node.target is torch.ops.aten.layer_norm.default)
    assert all(isinstance(slopes, torch.fx.Node) for slopes in norm.args[2:4])


def test_a_layer_that_is_called_twice_keeps_its_weights() -> None:
    rewritten(fold_scales, Parts(lambda parts, x: parts[0](parts[1](x)) + parts[0](x) * 0.5, *layers()), 5, 8)


@pytest.mark.parametrize(("padding", "calculations"), [(0, 0), (1, 2)])
def test_pixels_are_normalized_by_the_first_convolution_where_it_pads_nothing(padding: int, calculations: int) -> None:
    torch.manual_seed(0)
    convolution = nn.Conv2d(3, 4, 3, stride=2, padding=padding)
    made = targets(rewritten(fold_scales, Parts(lambda parts, x: parts[0]((x - 0.5) / 0.2), convolution), 3, 8, 8))
    assert sum(name in ("mul", "div", "add", "sub") for name in made) == calculations
