from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from edgekit_targets.executorch.xnnpack_passes import split_linears
from tests.targets.captured import Formula, Parts, rewritten, targets


def packed(layers: nn.ModuleList, x: Tensor) -> Tensor:
    parts = layers[0](x).reshape(x.shape[0], 5, 3, 2, 4).permute(2, 0, 3, 1, 4)
    return torch.as_tensor(parts[0] @ parts[1].transpose(-2, -1) @ parts[2])


def of_torch(layers: nn.ModuleList, x: Tensor) -> Tensor:
    """As PyTorch's own multi-head attention packs them."""
    parts = layers[0](x).unflatten(-1, (3, 8)).unsqueeze(0).transpose(0, -2).squeeze(-2).contiguous()
    return torch.as_tensor(parts[0] - 2 * parts[1] + parts[2].exp())


def interleaved(layers: nn.ModuleList, x: Tensor) -> Tensor:
    parts = layers[0](x).reshape(x.shape[0], 5, 8, 3)
    return torch.as_tensor(parts[..., 0] - 2 * parts[..., 1] * parts[..., 2])


def gated(layers: nn.ModuleList, x: Tensor) -> Tensor:
    y = layers[0](x)
    return torch.as_tensor(y[..., :9] * torch.sigmoid(y[..., 9:18]))


def one_alone(layers: nn.ModuleList, x: Tensor) -> Tensor:
    y = layers[0](x)
    return torch.as_tensor(y[..., :3] * torch.sigmoid(y[..., 3]).unsqueeze(-1))


@pytest.mark.parametrize(
    ("formula", "parts"), [(packed, 3), (of_torch, 3), (interleaved, 3), (gated, 2), (one_alone, 2)]
)
@pytest.mark.parametrize("bias", [True, False])
def test_a_layer_for_each_part(formula: Formula, parts: int, bias: bool) -> None:
    torch.manual_seed(0)
    graph = rewritten(split_linears, Parts(formula, nn.Linear(6, 24, bias=bias)), 5, 6)
    assert not list(graph.buffers())  # of which ExecuTorch would keep the fp32 values beside those in INT8
    made = targets(graph)
    assert made.count("linear") == parts
    assert not {"select", "slice"} & set(made)


def test_a_layer_that_is_also_read_whole_stays_one() -> None:
    torch.manual_seed(0)
    module = Parts(lambda layers, x: layers[0](x)[..., :3] + layers[0](x).sum(-1, keepdim=True), nn.Linear(6, 6))
    shared = Parts(lambda layers, x: (y := layers[0](x))[..., :3] + y.sum(-1, keepdim=True), nn.Linear(6, 6))
    assert targets(rewritten(split_linears, shared, 5, 6)).count("linear") == 1
    assert targets(rewritten(split_linears, module, 5, 6)).count("linear") == 2


def test_selections_of_samples_and_rows_stay() -> None:
    module = Parts(lambda layers, x: layers[0](x)[:, 1:3] * 2, nn.Linear(6, 6))
    assert "slice" in targets(rewritten(split_linears, module, 5, 6))


def test_a_layer_that_is_called_twice_and_read_in_other_parts() -> None:
    def twice(layers: nn.ModuleList, x: Tensor) -> Tensor:
        first, second = layers[0](x), layers[0](x.exp())
        return torch.as_tensor(first[..., :3] * first[..., 3:] - second[..., :4].sum(-1, True) * second[..., 4:5])

    torch.manual_seed(0)
    assert targets(rewritten(split_linears, Parts(twice, nn.Linear(6, 6)), 5, 6)).count("linear") == 4


class Own(nn.Module):
    """A weight that is no layer's, as those that another rewrite made."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(6, 6))

    def forward(self, x: Tensor) -> Tensor:
        y = nn.functional.linear(x, self.weight)
        return y[..., :3] * y[..., 3:].exp()


def test_a_weight_of_the_model_s_own() -> None:
    torch.manual_seed(0)
    assert targets(rewritten(split_linears, Own(), 5, 6)).count("linear") == 2
