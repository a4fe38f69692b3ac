"""Asking: queries about rendered scenes, and which patches answer them."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from edgekit.arrcoc.counter_rng import Chance
from edgekit.arrcoc.queries import CONCEPTS, OBJECT, OUTLINE
from edgekit.arrcoc.scenes import ATTRIBUTES, CELL, Scenes

KINDS = ("attributes", "anything", "outlines")
"""What a query is about: objects with one to three attributes, any object, or the borders of objects."""

SHARES = (88, 6, 6)
"""How many of a hundred queries are of each kind."""

SUBSETS = tuple(
    tuple(subset >> bit & 1 for bit in range(len(ATTRIBUTES))) for subset in range(1, 2 ** len(ATTRIBUTES) - 1)
)
"""The 14 choices of one to three attributes out of four."""

WORDS_SHARES = (30, 40, 30)
"""How many of a hundred attribute queries name one, two and three attributes."""

NAMED = 20
"""Of a hundred attribute queries, how many also say `object`."""

OUTLINE_FULL = 16
"""Pixels of outline that make a patch fully an outline: a straight line across it."""


@dataclass(frozen=True)
class Questions:
    """Q queries about each of B scenes.

    Attributes:
        kind: [B, Q] int64, index into `KINDS`.
        concepts: [B, Q, concepts] bool, what the words mean.
        truth: [B, Q, N] float32 in [0, 1], the share of each patch that answers.
    """

    kind: Tensor
    concepts: Tensor
    truth: Tensor

    def encode(self, table: Tensor) -> Tensor:
        """Mean of the concepts' rows ([concepts, 768]): [B, Q, 768]."""
        chosen = self.concepts.to(table.dtype)
        return chosen @ table / chosen.sum(-1, keepdim=True)


def ask(scenes: Scenes, seeds: Tensor, count: int) -> Questions:
    """Ask so many queries about each scene; a seed ([B] int64) and a scene give the same queries everywhere.

    Attribute queries describe a clearly visible object by one to three of its attributes; every object that fits, also
    a hidden one, is part of the answer as far as it is visible.
    """
    chance = Chance(seeds)
    target = _target(chance, scenes, count)
    wanted = scenes.attributes.gather(1, target.unsqueeze(2).expand(-1, -1, len(ATTRIBUTES)))
    mask = torch.tensor(SUBSETS, device=target.device)[_subset(chance, count)].to(torch.bool)
    equal = scenes.attributes.unsqueeze(1) == wanted.unsqueeze(2)
    exists = (scenes.attributes[:, :, 0] >= 0).unsqueeze(1)
    fits = (equal | ~mask.unsqueeze(2)).all(3) & exists
    roll = chance.below(100, count)
    kind = (roll >= SHARES[0]).to(torch.int64) + (roll >= SHARES[0] + SHARES[1]).to(torch.int64)
    fits = torch.where((kind == 0).unsqueeze(2), fits, exists)
    # Sums of at most 256 are exact in float32, whatever the order.
    covered = torch.matmul(fits.to(torch.float32), scenes.visible.to(torch.float32)) / CELL**2
    outline = (scenes.outline.to(torch.float32) / OUTLINE_FULL).clamp(max=1.0).unsqueeze(1)
    truth = torch.where((kind == 2).unsqueeze(2), outline, covered)
    return Questions(kind, _concepts(kind, wanted, mask, chance.often(NAMED, count)), truth)


def describe(concepts: Tensor) -> str:
    """Words for one query's concepts ([concepts] bool), in the order of `CONCEPTS`."""
    return " ".join(CONCEPTS[index] for index in torch.nonzero(concepts)[:, 0].tolist())


def _target(chance: Chance, scenes: Scenes, count: int) -> Tensor:
    """A clearly visible object for each query: [B, Q] int64. The largest visible one, where none is clear."""
    seen = scenes.visible.sum(2, dtype=torch.int32)
    clear = (seen >= scenes.area) & (scenes.attributes[:, :, 0] >= 0)
    slots = torch.arange(seen.shape[1], device=seen.device)
    # The slot breaks ties, which argmax may break differently on different devices.
    fallback = (seen * 16 + slots).argmax(1, keepdim=True) == slots
    clear = torch.where(clear.any(1, keepdim=True), clear, fallback)
    order = clear.to(torch.int64).cumsum(1) * clear
    number = 1 + (chance.bits(count) * clear.sum(1, keepdim=True) >> 32)
    return (order.unsqueeze(1) == number.unsqueeze(2)).to(torch.int64).argmax(2)


def _subset(chance: Chance, count: int) -> Tensor:
    """Indices into `SUBSETS`, [B, Q]: first how many attributes, then which."""
    roll, pick = chance.below(100, count), chance.bits(count)
    chosen = torch.zeros_like(roll)
    for number, low in ((1, 0), (2, WORDS_SHARES[0]), (3, WORDS_SHARES[0] + WORDS_SHARES[1])):
        options = [index for index, subset in enumerate(SUBSETS) if sum(subset) == number]
        which = torch.tensor(options, device=roll.device)[pick * len(options) >> 32]
        chosen = torch.where(roll >= low, which, chosen)
    return chosen


def _concepts(kind: Tensor, wanted: Tensor, mask: Tensor, named: Tensor) -> Tensor:
    """Which concepts each query names: [B, Q, concepts] bool."""
    concepts = torch.zeros(*kind.shape, len(CONCEPTS), dtype=torch.bool, device=kind.device)
    start = 0
    for number, values in enumerate(ATTRIBUTES):
        said = (mask[..., number] & (kind == 0)).unsqueeze(2)
        names = torch.arange(len(values), device=kind.device)
        concepts[..., start : start + len(values)] = said & (wanted[..., number : number + 1] == names)
        start += len(values)
    concepts[..., CONCEPTS.index(OBJECT)] = torch.where(kind == 0, named, kind == 1)
    concepts[..., CONCEPTS.index(OUTLINE)] = kind == 2
    return concepts
