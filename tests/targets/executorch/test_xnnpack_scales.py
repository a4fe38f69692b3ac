from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from edgekit_targets.executorch.xnnpack_passes import fold_scales, split_linears
from tests.targets.captured import Formula, Parts, rewritten, targets


@pytest.mark.parametrize(
    ("formula", "calculations"),
    [
        (lambda parts, x: (parts[0](x) / 4).relu(), 0),
        (lambda parts, x: (parts[0](x).reshape(-1, 5, 3, 2).transpose(1, 2) * 0.5).relu(), 0),
        (lambda parts, x: (parts[0](x) * parts.get_parameter("0.bias")).relu(), 1),
        (lambda parts, x: (y := parts[0](x)) * 0.5 + y, 2),
    ],
)
def test_a_number_behind_a_linear_layer(formula: Formula, calculations: int) -> None:
    made = targets(rewritten(fold_scales, Parts(formula, nn.Linear(8, 6)), 5, 8))
    assert sum(name in ("mul", "div", "add") for name in made) == calculations


@pytest.mark.parametrize(("padding", "calculations"), [(0, 0), (1, 2)])
def test_pixels_are_normalized_by_the_first_convolution_where_it_pads_nothing(padding: int, calculations: int) -> None:
    torch.manual_seed(0)
    convolution = nn.Conv2d(3, 4, 3, stride=2, padding=padding)
    made = targets(rewritten(fold_scales, Parts(lambda parts, x: parts[0]((x - 0.5) / 0.2), convolution), 3, 8, 8))
    assert sum(name in ("mul", "div", "add", "sub") for name in made) == calculations


def test_parts_of_a_layer_that_is_called_twice_are_scaled_once_each() -> None:
    def half(layers: nn.ModuleList, x: Tensor) -> Tensor:
        return torch.as_tensor((y := layers[0](x))[..., :3] * 0.5 + y[..., 3:])

    def rewrite(module: torch.fx.GraphModule) -> None:
        split_linears(module)
        fold_scales(module)

    torch.manual_seed(0)
    twice = Parts(lambda layers, x: half(layers, x) + half(layers, x.exp()), nn.Linear(6, 6))
    assert "mul" not in targets(rewritten(rewrite, twice, 5, 6))
