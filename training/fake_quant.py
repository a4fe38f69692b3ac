"""Coarse arithmetic: training as INT8 will compute, so that a quantized model still answers the same."""

from __future__ import annotations

from types import TracebackType

import torch
from torch import Tensor, nn

LEVELS = 127
"""Steps of a weight's grid on either side of zero, for each row (output channel)."""

POWER = 4
"""Squarings of the norm whose ratio to the standard deviation is the spread: of power 16, near the largest value."""


SPREAD_ROWS = 32
"""Scenes of a batch that the spread is measured on."""


class Coarse:
    """Rounds the inputs and, within a `with` block, the weights of linear layers and convolutions.

    The gradient passes through unchanged (Jacob et al., 2018, https://arxiv.org/abs/1712.05877), and reaches the range
    as well (Esser et al., 2020, https://arxiv.org/abs/1902.08153). Activations have one range a tensor, over the whole
    batch, and weights one symmetric range a row, as in static INT8 everywhere.

    Args:
        model: Its layers get hooks that stay.

    Attributes:
        steps: Of an activation's grid: 255 for 8 bits, or fewer for coarser ones.
        twins: Whether only the second half of a batch is rounded: it is the first half again, which stays exact.
        spreads: Of each input since it was emptied, the logarithm of how far its largest values are beyond its standard
            deviation.
    """

    def __init__(self, model: nn.Module) -> None:
        # A tensor, since compiled code is made anew for every number.
        self.steps = torch.tensor(255.0, device=next(model.parameters()).device)
        self.twins = False
        self.spreads: list[Tensor] = []
        layers = [layer for layer in model.modules() if isinstance(layer, nn.Linear | nn.Conv2d)]
        for layer in layers:
            if isinstance(layer, nn.Linear):
                layer.register_forward_pre_hook(self._round_input)
        self._weights = [layer.weight for layer in layers]
        self._levels = LEVELS
        self._exact: list[Tensor] = []

    def __call__(self, levels: int) -> Coarse:
        """Round weights to so many steps on either side of zero: 127 for 8 bits, 63 for 7."""
        self._levels = levels
        return self

    @torch.no_grad()
    def __enter__(self) -> None:
        """Round the weights."""
        self._exact = [weight.clone() for weight in self._weights]
        torch._foreach_copy_(self._weights, [on_grid(weight, self._levels) for weight in self._weights])

    @torch.no_grad()
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Bring the weights back."""
        torch._foreach_copy_(self._weights, self._exact)

    def _round_input(self, layer: nn.Module, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        values = inputs[0]
        if not self.twins:
            return (rounded(values, values, self.steps),)
        half = len(values) // 2
        exact = values[:half]
        self.spreads.append(spread(exact[:: max(1, half // SPREAD_ROWS)]))
        return (torch.cat([exact, rounded(values[half:], exact, self.steps)]),)


def rounded(values: Tensor, ranged: Tensor, steps: Tensor) -> Tensor:
    """Values on a grid of so many steps over the range of some (mostly themselves).

    The gradient is that of the identity, and that of the range by the error that each value has of a step.
    """
    low, high = ranged.amin().float(), ranged.amax().float()
    step = (high - low).clamp(min=1e-8) / steps
    with torch.no_grad():
        place = (values.float() - low) / step
        error = place.round().sub_(place)
    return values + (error * step).to(values.dtype)


def spread(values: Tensor) -> Tensor:
    """Logarithm of the ratio of a high norm to the standard deviation: 0.9 for normal values, more with outliers."""
    centred = values.float()
    centred = centred - centred.mean()
    largest = centred.detach().abs().amax().clamp(min=1e-6)
    powers = square = (centred / largest) ** 2
    for _ in range(POWER - 1):
        powers = powers * powers
    high = torch.log(powers.mean() + 1e-30) / 2**POWER
    spread: Tensor = high - 0.5 * torch.log(square.mean() + 1e-12)
    return spread


@torch.no_grad()
def on_grid(weight: Tensor, levels: int = LEVELS) -> Tensor:
    """Weights [rows, ...] on a symmetric grid a row, exactly: integers within the levels times the row's step.

    The step has 16 bits, so that its product with an integer of 7 bits is exact in float32, the largest of a row is
    `levels` steps, and whoever divides the largest by `levels` has the step again.
    """
    flat = weight.flatten(1).float()
    step = _short(flat.abs().amax(1, keepdim=True).clamp(min=1e-12) / levels)
    return (torch.round(flat / step).clamp(-levels, levels) * step).view_as(weight).to(weight.dtype)


def _short(values: Tensor) -> Tensor:
    """Float32 values rounded to 16 bits of their mantissa."""
    fraction, exponent = torch.frexp(values)
    return torch.ldexp(torch.round(fraction * 2**16) / 2**16, exponent)
