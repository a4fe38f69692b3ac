"""Photographs: cuts out of a bank of them for scenes, in integers; and the few that are held out.

A bank is [n, 3, s, s] uint8. `gather` makes the one for training from Debian packages; the held-out ones, for
evaluation and calibration, are in `held_out/`; author and licence of each are in `photographs.json` beside the weights.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from edgekit.errors import CheckpointError
from edgekit_arrcoc.counter_rng import Chance
from edgekit_arrcoc.datasets import read_picture
from edgekit_arrcoc.presets import HOME
from training import exposure
from training.background import soften

BANK_EDGE = 448
"""Edge of a photograph in a bank, in pixels."""

HELD_OUT = Path(__file__).parent / "held_out"
"""The photographs that training never saw."""

SOURCES = HOME / "photographs.json"
"""Their authors and licences; ships with the pictures that were made from them."""

USES = ("evaluation", "calibration")
"""What a held-out photograph is for: never both."""


def cut(chance: Chance, bank: Tensor, high: int, wide: int) -> Tensor:
    """A part of a random photograph for each scene, scaled, sometimes mirrored, its tones changed.

    Args:
        chance: Draws for B scenes.
        bank: [n, 3, s, s] uint8, on the device of the draws.
        high: Height in pixels.
        wide: Width in pixels.

    Returns:
        [B, 3, high, wide] int32 in [0, 255].
    """
    which, size = chance.below(len(bank)), chance.between(115, 256)
    places = [chance.bits(), chance.bits()]
    painted = view(bank, which, size, places[0], places[1], chance.bernoulli(50), high, wide)
    painted = exposure.tone(chance, painted, chance.bernoulli(12), contrast=30, level=30, cast=25, least=80)
    rows = torch.nonzero(chance.bernoulli(15))[:, 0]
    painted[rows] = soften(painted[rows], 2)
    return painted


def view(
    bank: Tensor, which: Tensor, size: Tensor, top: Tensor, left: Tensor, mirrored: Tensor, high: int, wide: int
) -> Tensor:
    """Scaled parts of photographs, interpolated linearly with steps of 1/256 pixel.

    Args:
        bank: [n, 3, s, s] uint8.
        which: [B] int64, of the bank.
        size: [B] int64 in [1, 256], share of the largest part that fits.
        top: [B] int64 in [0, 2^32), where the part is in what is left over.
        left: Likewise.
        mirrored: [B] bool, left to right.
        high: Height of the result in pixels.
        wide: Width.

    Returns:
        [B, 3, high, wide] int32.
    """
    edge = bank.shape[-1]
    step = ((edge - 1) * 256 // max(high, wide)) * size >> 8
    rows = _line(step, top, high, edge)
    columns = _line(step, left, wide, edge)
    columns = torch.where(mirrored.view(-1, 1), columns.flip(1), columns)
    channel = torch.arange(3, device=bank.device).view(1, 3, 1, 1) + 3 * which.view(-1, 1, 1, 1)
    rows, columns = rows[:, None, :, None], columns[:, None, None, :]
    start = (channel * edge + (rows >> 8)) * edge + (columns >> 8)
    down, right = (rows & 255).to(torch.int32), (columns & 255).to(torch.int32)
    flat = bank.reshape(-1)
    upper = flat[start].to(torch.int32) * (256 - right) + flat[start + 1].to(torch.int32) * right
    lower = flat[start + edge].to(torch.int32) * (256 - right) + flat[start + edge + 1].to(torch.int32) * right
    return (upper * (256 - down) + lower * down + (1 << 15)) >> 16


def _line(step: Tensor, place: Tensor, count: int, edge: int) -> Tensor:
    """Places along one axis in 1/256 pixel: [B, count] int64, each with a right neighbour."""
    room = (edge - 1) * 256 - 1 - step * (count - 1)
    return (room * place >> 32).view(-1, 1) + step.view(-1, 1) * torch.arange(count, device=step.device)


def held_out(use: str, folder: Path = HELD_OUT) -> Tensor:
    """The bank of the held-out photographs for one of `USES`: [n, 3, 448, 448] uint8.

    Raises:
        CheckpointError: A file is missing or damaged.
    """
    try:
        record = json.loads(SOURCES.read_text(encoding="utf-8"))["photographs"]
        pictures = [read_picture(folder / one["file"]) for one in record if one["use"] == use]
        stacked = np.stack(pictures).transpose(0, 3, 1, 2)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CheckpointError(f"the photographs in '{folder}' cannot be read ({error}): reinstall edgekit") from error
    return torch.from_numpy(np.ascontiguousarray(stacked))
