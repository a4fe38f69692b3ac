"""Views: how large a part of its scenes a training step sees."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import torch

from training.objective import Window
from training.objects import Frame
from training.scenes import CELL

LARGE = Frame(512, 512)
"""The frame of the second pool."""


@dataclass(frozen=True)
class View:
    """What a step sees of its scenes.

    Attributes:
        share: Of a hundred steps, how many are such.
        large: Whether of large scenes or of those of 224 x 224.
        rows: Of patches.
        columns: Of patches.
        compiled: Whether a compilation for this size is worth its time, which is about a minute.
    """

    share: int
    large: bool
    rows: int
    columns: int
    compiled: bool = False


VIEWS = (
    View(72, False, 14, 14, True),
    View(1, False, 12, 12),
    View(1, False, 10, 14),
    View(1, False, 14, 10),
    View(1, False, 8, 8),
    View(1, False, 6, 9),
    View(3, False, 6, 6),
    View(12, True, 32, 32),
    View(3, True, 24, 24),
    View(3, True, 20, 32),
    View(1, True, 32, 20),
    View(1, True, 18, 28),
)
"""Sizes from 96 x 96 to 512 x 512 pixels. A step of larger ones has fewer scenes, so that patches are as many."""


def window(seed: int, step: int) -> tuple[View, Window]:
    """What a step sees: the kind of view, and where it is in the scenes."""
    draw = torch.Generator().manual_seed(seed * 10**7 + step)
    roll = int(torch.randint(100, (1,), generator=draw))
    ends = itertools.accumulate(view.share for view in VIEWS)
    chosen = next(view for view, end in zip(VIEWS, ends, strict=True) if roll < end)
    edge = (LARGE.height if chosen.large else Frame().height) // CELL
    top = int(torch.randint(edge + 1 - chosen.rows, (1,), generator=draw))
    left = int(torch.randint(edge + 1 - chosen.columns, (1,), generator=draw))
    return chosen, Window(top, left, chosen.rows, chosen.columns)
