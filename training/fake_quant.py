"""Coarse arithmetic: training as INT8 will compute, so that a quantized model still answers the same."""

from __future__ import annotations

from types import TracebackType

import torch
from torch import Tensor, nn


class Coarse:
    """Rounds the inputs and, within a `with` block, the weights of linear layers and convolutions.

    The gradient passes through unchanged (Jacob et al., 2018, https://arxiv.org/abs/1712.05877). Activations have one
    range a tensor and weights one symmetric range a tensor, as in ONNX Runtime's dynamic quantization.

    Args:
        model: Its layers get hooks that stay.

    Attributes:
        steps: Of an activation's grid: 255 for 8 bits, or fewer for coarser ones.
    """

    def __init__(self, model: nn.Module) -> None:
        # A tensor, since compiled code is made anew for every number.
        self.steps = torch.tensor(255.0, device=next(model.parameters()).device)
        layers = [layer for layer in model.modules() if isinstance(layer, nn.Linear | nn.Conv2d)]
        for layer in layers:
            if isinstance(layer, nn.Linear):
                layer.register_forward_pre_hook(self._round_input)
        self._weights = [layer.weight for layer in layers]
        self._levels = 127
        self._exact: list[Tensor] = []

    def __call__(self, levels: int) -> Coarse:
        """Round weights to so many steps on either side of zero: 127 for 8 bits, 63 for 7."""
        self._levels = levels
        return self

    @torch.no_grad()
    def __enter__(self) -> None:
        """Round the weights."""
        self._exact = [weight.clone() for weight in self._weights]
        steps = torch._foreach_norm(self._weights, float("inf"))
        torch._foreach_div_(steps, float(self._levels))
        rounded = torch._foreach_div(self._weights, steps)
        torch._foreach_round_(rounded)
        torch._foreach_mul_(rounded, steps)
        torch._foreach_copy_(self._weights, rounded)

    @torch.no_grad()
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Bring the weights back."""
        torch._foreach_copy_(self._weights, self._exact)

    def _round_input(self, layer: nn.Module, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        return (rounded(inputs[0], self.steps),)


def rounded(values: Tensor, steps: Tensor) -> Tensor:
    """Values on a grid of so many steps over their range; the gradient is that of the identity."""
    exact = values.detach().float()
    low = exact.amin()
    step = (exact.amax() - low).clamp(min=1e-8) / steps
    return values + (torch.round((exact - low) / step) * step + low - exact).to(values.dtype)
