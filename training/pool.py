"""A pool of rendered scenes and queries in the device's memory, refreshed while training draws from it."""

from __future__ import annotations

import torch
from torch import Tensor

from training import flat
from training.objects import Frame
from training.questions import Posed, Questions, answered, pose
from training.scenes import EMPTY, Scenes, render

POSED = 96
"""Queries that are kept of each scene: posing them anew at each step would take as long as the step."""


class Pool:
    """Scenes that a training step samples from. Which scenes it holds follows from the step alone, so runs resume.

    Args:
        chunks: How many chunks it holds.
        chunk: Scenes rendered at once.
        every: Steps between the replacements of one chunk by a new one; 0 never replaces.
        first: First seed.
        step: Step to start at.
        device: Where to render and keep the scenes.
        frame: Size of the scenes; 224 x 224 by default.
        bank: Photographs, on the device; None for scenes without.
        shares: As for `render`: of a hundred scenes, how many have a photograph, and how many of these have no object.
        plain: Of a hundred scenes, how many are flat pictures, without any of that.
    """

    def __init__(
        self,
        chunks: int,
        chunk: int,
        every: int,
        first: int,
        step: int,
        device: torch.device,
        frame: Frame | None = None,
        bank: Tensor | None = None,
        shares: tuple[int, int] = (100, EMPTY),
        plain: int = 0,
    ) -> None:
        self._chunks, self._chunk, self._every, self._first = chunks, chunk, every, first
        self._device, self._bank, self._shares, self.frame = device, bank, shares, frame or Frame()
        self._plain = chunk * plain // 100
        replaced = step // every if every else 0
        parts = []
        for place in range(chunks):
            # The last refresh before `replaced` that fell on this place; each place is taken in turn.
            rounds = (replaced - place + chunks - 1) // chunks
            parts.append(self._render(place + rounds * chunks))
        self._fields = tuple(torch.cat(field) for field in zip(*parts, strict=True))

    def refresh(self, step: int) -> None:
        """Replace the oldest chunk if this step is one that does; call it after every step with the steps done."""
        if not self._every or step % self._every:
            return
        place = (step // self._every - 1) % self._chunks
        fresh = self._render(self._chunks + step // self._every - 1)
        for mine, new in zip(self._fields, fresh, strict=True):
            mine[place * self._chunk : (place + 1) * self._chunk] = new

    def sample(self, count: int, queries: int, generator: torch.Generator) -> tuple[Scenes, Questions]:
        """So many scenes, drawn with replacement, and so many of the queries that are kept of each."""
        rows = torch.randint(self._chunks * self._chunk, (count,), generator=generator, device=self._device)
        which = torch.randint(POSED, (count, queries), generator=generator, device=self._device)
        *drawn, kind, answer, concepts, fits = (field[rows] for field in self._fields)
        chosen = Posed(
            kind.gather(1, which),
            answer.gather(1, which),
            *(field.gather(1, which.unsqueeze(2).expand(-1, -1, field.shape[2])) for field in (concepts, fits)),
        )
        scenes = Scenes(*drawn)
        return scenes, answered(scenes, chosen)

    def _render(self, serial: int) -> tuple[Tensor, ...]:
        start = self._first + serial * self._chunk
        seeds = torch.arange(start, start + self._chunk, device=self._device)
        rest = self._chunk - self._plain
        parts = [_fields(render(seeds[:rest], self.frame, self._bank, *self._shares))]
        if self._plain:
            parts.append(_fields(flat.render(seeds[rest:], self.frame)))
        fields = [torch.cat(field) for field in zip(*parts, strict=True)]
        posed = pose(Scenes(*fields), seeds, POSED)
        return *fields, posed.kind, posed.answer, posed.concepts, posed.fits


def _fields(scenes: Scenes) -> tuple[Tensor, ...]:
    return scenes.images, scenes.attributes, scenes.visible, scenes.outline, scenes.area, scenes.grey
