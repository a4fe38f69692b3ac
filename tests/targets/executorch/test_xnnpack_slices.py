from __future__ import annotations

import torch
from torch import Tensor, nn

from edgekit_arrcoc.texture import sobel
from edgekit_targets.executorch.xnnpack_passes import combine_slices
from tests.targets.captured import Parts, rewritten, targets


def test_a_filter_with_repeated_borders_is_products() -> None:
    def formula(_: nn.ModuleList, x: Tensor) -> Tensor:
        across, down = sobel(x)
        return torch.cat([across, down * 3], 1)

    made = targets(rewritten(combine_slices, Parts(formula), 1, 9, 12))
    assert "slice" not in made
    assert made.count("linear") == 6  # two borders, and two for each direction


def test_slices_that_other_tensors_meet_stay() -> None:
    def formula(_: nn.ModuleList, x: Tensor) -> Tensor:
        return x[:, 1:] * x[:, :-1]

    assert targets(rewritten(combine_slices, Parts(formula), 6)).count("slice") >= 2


def test_one_slice_and_slices_of_large_tensors_stay() -> None:
    assert "slice" in targets(rewritten(combine_slices, Parts(lambda _, x: x[:, 2:] * 2), 6))
    large = Parts(lambda _, x: torch.cat([x[..., 90:], x[..., :90]], -1))
    assert "linear" not in targets(rewritten(combine_slices, large, 64, 128))
