from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from edgekit_targets.executorch.xnnpack_passes import write_out_reductions
from tests.targets.captured import Formula, Parts, rewritten, targets

REDUCTIONS = {"mean", "sum", "amax", "layer_norm", "log_softmax"}


@pytest.mark.parametrize(
    "formula",
    [
        lambda _, x: x.mean(-1),
        lambda _, x: x.mean(1, keepdim=True),
        lambda _, x: x.sum((1, 3)),
        lambda _, x: x.sum((-1, -2), keepdim=True),
        lambda _, x: x.amax(-1),
        lambda _, x: (30 * x).amax([3], keepdim=True),
        lambda _, x: functional.log_softmax(200 * x, -1),
        lambda layers, x: layers[0](x),
        lambda layers, x: layers[1](x),
    ],
)
def test_what_is_reduced_over_a_fixed_axis_is_a_product_or_a_pool(formula: Formula) -> None:
    torch.manual_seed(0)
    layers = (nn.LayerNorm(7), nn.LayerNorm((6, 7), elementwise_affine=False))
    made = targets(rewritten(write_out_reductions, Parts(formula, *layers), 4, 6, 7))
    assert not REDUCTIONS & set(made)


def test_means_of_pictures_are_xnnpacks_own() -> None:
    formulas: tuple[Formula, ...] = (lambda _, x: x.mean((2, 3)), lambda _, x: x.mean((-1, -2), keepdim=True))
    for formula in formulas:
        made = rewritten(write_out_reductions, Parts(formula), 4, 6, 7)
        (mean,) = (node for node in made.graph.nodes if node.target is torch.ops.aten.mean.dim)
        assert mean.args[1:] == ([2, 3], True)


def test_sums_over_samples_and_of_integers_stay() -> None:
    assert "sum" in targets(rewritten(write_out_reductions, Parts(lambda _, x: x.sum(0)), 4))
    assert "sum" in targets(rewritten(write_out_reductions, Parts(lambda _, x: (8 * x).long().sum(1)), 4))


def test_a_pool_counts_no_padding_where_it_has_none() -> None:
    def pools(_: nn.ModuleList, x: Tensor) -> Tensor:
        padded = functional.avg_pool2d(x, 3, 1, 1)
        return functional.avg_pool2d(padded, 2) + functional.avg_pool2d(x, (2, 2), ceil_mode=True, divisor_override=3)

    made = rewritten(write_out_reductions, Parts(pools), 4, 6, 8)
    settings = [node.args[5:6] for node in made.graph.nodes if node.target is torch.ops.aten.avg_pool2d.default]
    assert settings == [(), (False,), (False,)]
