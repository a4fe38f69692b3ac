"""A pool of rendered scenes and queries in the device's memory, refreshed while training draws from it."""

from __future__ import annotations

from dataclasses import fields

import torch
from torch import Tensor

from training import flat, naming
from training.objects import Frame
from training.questions import ABSENT, HARD, InputBatch, Posed, answered, pose
from training.scenes import EMPTY, Scenes, render
from training.sprites import Sprites

POSED = 96
"""Queries that are kept of each scene: posing them anew at each step would take as long as the step."""

FLAT_HARD = 28
"""Of a hundred attribute queries about flat pictures, how many are hard ones: elsewhere `HARD`."""


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
        sprites: Pictures of things with names, on the device.
        named: Of a hundred scenes, how many have sprites; of flat pictures half.
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
        sprites: Sprites | None = None,
        named: int = 0,
    ) -> None:
        self._chunks, self._chunk, self._every, self._first = chunks, chunk, every, first
        self._device, self._bank, self._shares, self.frame = device, bank, shares, frame or Frame()
        self._plain = chunk * plain // 100
        self._sprites, self._named = sprites, chunk * named // 100 if sprites is not None else 0
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

    def sample(self, count: int, queries: int, generator: torch.Generator) -> tuple[Scenes, InputBatch]:
        """So many scenes, drawn with replacement, and so many of the queries that are kept of each."""
        rows = torch.randint(self._chunks * self._chunk, (count,), generator=generator, device=self._device)
        which = torch.randint(POSED, (count, queries), generator=generator, device=self._device)
        *drawn, kind, answer, concepts, fits = (one[rows] for one in self._fields)
        chosen = Posed(
            kind.gather(1, which),
            answer.gather(1, which),
            *(one.gather(1, which.unsqueeze(2).expand(-1, -1, one.shape[2])) for one in (concepts, fits)),
        )
        scenes = Scenes(*drawn)
        return scenes, answered(scenes, chosen)

    def _render(self, serial: int) -> tuple[Tensor, ...]:
        start = self._first + serial * self._chunk
        seeds = torch.arange(start, start + self._chunk, device=self._device)
        flat_named = self._plain // 2 if self._named else 0
        ends = [self._chunk - self._plain - self._named, self._named, self._plain - flat_named, flat_named]
        drawn, named, plain, plain_named = torch.split(seeds, ends)
        parts = [self._asked(render(drawn, self.frame, self._bank, *self._shares), drawn)]
        if len(named):
            parts.append(self._asked(render(named, self.frame, self._bank, *self._shares, self._sprites), named, True))
        if len(plain):
            parts.append(self._asked(flat.render(plain, self.frame), plain, hard=FLAT_HARD))
        if len(plain_named):
            parts.append(self._asked(flat.render(plain_named, self.frame, self._sprites), plain_named, True))
        return tuple(torch.cat(field) for field in zip(*parts, strict=True))

    def _asked(self, scenes: Scenes, seeds: Tensor, named: bool = False, hard: int = HARD) -> tuple[Tensor, ...]:
        """The fields of scenes, then those of the queries about them."""
        own = (getattr(scenes, one.name) for one in fields(scenes))
        if named:
            posed = naming.pose(scenes, seeds, POSED)
        else:
            posed = pose(scenes, seeds, POSED, (ABSENT, hard))
            posed = posed if self._sprites is None else naming.elsewhere(posed, seeds)
        return *own, posed.kind, posed.answer, posed.concepts, posed.fits
