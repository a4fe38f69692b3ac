"""A pool of rendered scenes in the device's memory, refreshed while training draws from it."""

from __future__ import annotations

import torch
from torch import Tensor

from edgekit.arrcoc.scenes import Scenes, render


class Pool:
    """Scenes that a training step samples from. Which scenes it holds follows from the step alone, so runs resume.

    Args:
        chunks: How many chunks it holds.
        chunk: Scenes rendered at once.
        every: Steps between the replacements of one chunk by a new one; 0 never replaces.
        first: First seed.
        step: Step to start at.
        device: Where to render and keep the scenes.
    """

    def __init__(self, chunks: int, chunk: int, every: int, first: int, step: int, device: torch.device) -> None:
        self._chunks, self._chunk, self._every, self._first = chunks, chunk, every, first
        self._device = device
        replaced = step // every if every else 0
        parts = []
        for place in range(chunks):
            # The last refresh before `replaced` that fell on this place; each place is taken in turn.
            rounds = (replaced - place + chunks - 1) // chunks
            parts.append(self._render(place + rounds * chunks))
        self._scenes = Scenes(*(torch.cat(field) for field in zip(*map(_fields, parts), strict=True)))

    def refresh(self, step: int) -> None:
        """Replace the oldest chunk if this step is one that does; call it after every step with the steps done."""
        if not self._every or step % self._every:
            return
        place = (step // self._every - 1) % self._chunks
        fresh = self._render(self._chunks + step // self._every - 1)
        for mine, new in zip(_fields(self._scenes), _fields(fresh), strict=True):
            mine[place * self._chunk : (place + 1) * self._chunk] = new

    def sample(self, count: int, generator: torch.Generator) -> Scenes:
        """So many scenes, drawn with replacement."""
        rows = torch.randint(self._chunks * self._chunk, (count,), generator=generator, device=self._device)
        return Scenes(*(field[rows] for field in _fields(self._scenes)))

    def _render(self, serial: int) -> Scenes:
        start = self._first + serial * self._chunk
        return render(torch.arange(start, start + self._chunk, device=self._device))


def _fields(scenes: Scenes) -> tuple[Tensor, ...]:
    return scenes.images, scenes.attributes, scenes.visible, scenes.outline, scenes.area
