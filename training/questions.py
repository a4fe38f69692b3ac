"""Asking: queries about rendered scenes, and which patches answer them, if any do."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from edgekit_arrcoc.counter_rng import Chance
from edgekit_arrcoc.queries import ATTRIBUTES, MEANINGS, OBJECT, OUTLINE
from training.scenes import CELL, Scenes

KINDS = ("attributes", "anything", "outlines")
"""What a query is about: objects with one to three attributes, any object, or the borders of objects."""

SHARES = (88, 6, 6)
"""How many of a hundred queries are of each kind."""

ANSWERS = ("there", "absent", "hard")
"""Whether objects fit a query: some do; none does, because an attribute is nowhere; none does, although each attribute
is somewhere."""

ABSENT, HARD = 17, 17
"""Of a hundred attribute queries, how many are made so that no object fits: by an attribute that is nowhere, or by
attributes that are never on one object."""

TRIES = 8
"""Combinations that are tried for a query of the hard kind."""

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

_COLOUR, _SHAPE = 1, 3


@dataclass(frozen=True)
class InputBatch:
    """Q queries about each of B scenes.

    Attributes:
        kind: [B, Q] int64, index into `KINDS`.
        answer: [B, Q] int64, index into `ANSWERS`; 0 for queries that are not about attributes.
        concepts: [B, Q, concepts] bool, what the words mean.
        truth: [B, Q, N] float32 in [0, 1], the share of each patch that answers; zero where nothing does.
    """

    kind: Tensor
    answer: Tensor
    concepts: Tensor
    truth: Tensor

    def encode(self, table: Tensor) -> Tensor:
        """Mean of the concepts' rows ([concepts, 768]): [B, Q, 768]."""
        chosen = self.concepts.to(table.dtype)
        return chosen @ table / chosen.sum(-1, keepdim=True)


@dataclass(frozen=True)
class Posed:
    """Q queries about each of B scenes, without their truth.

    Attributes:
        kind: As in `InputBatch`.
        answer: As in `InputBatch`.
        concepts: As in `InputBatch`.
        fits: [B, Q, P] bool, the objects that answer; for outlines all of them.
    """

    kind: Tensor
    answer: Tensor
    concepts: Tensor
    fits: Tensor


def ask(scenes: Scenes, seeds: Tensor, count: int, shares: tuple[int, int] = (ABSENT, HARD)) -> InputBatch:
    """Ask so many queries about each scene; arguments as for `pose`."""
    return answered(scenes, pose(scenes, seeds, count, shares))


def answered(scenes: Scenes, posed: Posed) -> InputBatch:
    """Queries with the truth of their scenes."""
    # Sums of at most 256 are exact in float32, whatever the order; TF32 holds counts up to 256 exactly too.
    covered = torch.matmul(posed.fits.to(torch.float32), scenes.visible.to(torch.float32)) / CELL**2
    outline = (scenes.outline.to(torch.float32) / OUTLINE_FULL).clamp(max=1.0).unsqueeze(1)
    truth = torch.where((posed.kind == 2).unsqueeze(2), outline, covered)
    return InputBatch(posed.kind, posed.answer, posed.concepts, truth)


def pose(scenes: Scenes, seeds: Tensor, count: int, shares: tuple[int, int] = (ABSENT, HARD)) -> Posed:
    """Pose so many queries about each scene; a seed ([B] int64) and a scene give the same queries everywhere.

    Attribute queries describe a clearly visible object by one to three of its attributes, or nothing that is there;
    every object that fits, also a hidden one, is part of the answer as far as it is visible.

    Args:
        scenes: B scenes.
        seeds: [B] int64.
        count: Queries a scene, Q.
        shares: Of a hundred attribute queries, how many are `absent` and how many `hard`.
    """
    chance = Chance(seeds)
    target = _target(chance, scenes, count)
    wanted = scenes.attributes.gather(1, target.unsqueeze(2).expand(-1, -1, len(ATTRIBUTES)))
    any_at_all = torch.stack([chance.below(len(values), count) for values in ATTRIBUTES], 2)
    wanted = torch.where(wanted < 0, any_at_all, wanted)  # of a scene without objects
    mask = torch.tensor(SUBSETS, device=target.device)[_subset(chance, count)].to(torch.bool)
    mask[..., _COLOUR] &= ~scenes.grey.unsqueeze(1)
    mask[..., _SHAPE] |= ~mask.any(2)
    roll = chance.below(100, count)
    kind = (roll >= SHARES[0]).to(torch.int64) + (roll >= SHARES[0] + SHARES[1]).to(torch.int64)
    wanted, mask = _unanswerable(chance, scenes, wanted, mask, kind == 0, shares)
    exists = (scenes.attributes[:, :, 0] >= 0).unsqueeze(1)
    fits = _fits(scenes, wanted, mask)
    answer = _answers(scenes, wanted, mask, fits) * (kind == 0)
    fits = torch.where((kind == 0).unsqueeze(2), fits, exists)
    return Posed(kind, answer, _concepts(kind, wanted, mask, chance.bernoulli(NAMED, count)), fits)


def describe(concepts: Tensor) -> str:
    """Words for one query's concepts ([concepts] bool), in the order of `MEANINGS`."""
    return " ".join(MEANINGS[index] for index in torch.nonzero(concepts)[:, 0].tolist())


def _fits(scenes: Scenes, wanted: Tensor, mask: Tensor) -> Tensor:
    """Which objects have the wanted values ([B, Q, 4]) of the attributes in the mask: [B, Q, P] bool."""
    equal = scenes.attributes.unsqueeze(1) == wanted.unsqueeze(2)
    exists = (scenes.attributes[:, :, 0] >= 0).unsqueeze(1)
    return (equal | ~mask.unsqueeze(2)).all(3) & exists


def _somewhere(scenes: Scenes, wanted: Tensor) -> Tensor:
    """Which of the wanted values some object has: [B, Q, 4] bool."""
    return (scenes.attributes.unsqueeze(1) == wanted.unsqueeze(2)).any(2)


def _answers(scenes: Scenes, wanted: Tensor, mask: Tensor, fits: Tensor) -> Tensor:
    """Index into `ANSWERS`: [B, Q] int64."""
    somewhere = (_somewhere(scenes, wanted) | ~mask).all(2)
    return torch.where(fits.any(2), 0, torch.where(somewhere, 2, 1))


def _unanswerable(
    chance: Chance, scenes: Scenes, wanted: Tensor, mask: Tensor, asked: Tensor, shares: tuple[int, int]
) -> tuple[Tensor, Tensor]:
    """Change some of the attribute queries so that no object fits: wanted [B, Q, 4] and mask [B, Q, 4]."""
    count = wanted.shape[1]
    roll = chance.below(100, count)
    missing = _missing(chance, scenes, wanted, mask)
    lacking = ~(_somewhere(scenes, missing) | ~mask).all(2)
    # Hard ones need two attributes: of a query that has one, colour and shape are taken.
    pair = torch.tensor([False, True, False, True], device=mask.device).expand_as(mask)
    wider = torch.where((mask.sum(2, keepdim=True) >= 2), mask, pair)
    wider = wider & ~(scenes.grey.view(-1, 1, 1) & torch.tensor([False, True, False, False], device=mask.device))
    mixed, found = _mixed(chance, scenes, wanted, wider)
    hard = asked & (roll >= shares[0]) & (roll < shares[0] + shares[1]) & found
    absent = asked & (roll < shares[0] + shares[1]) & ~hard & lacking
    wanted = torch.where(absent.unsqueeze(2), missing, torch.where(hard.unsqueeze(2), mixed, wanted))
    return wanted, torch.where(hard.unsqueeze(2), wider, mask)


def _missing(chance: Chance, scenes: Scenes, wanted: Tensor, mask: Tensor) -> Tensor:
    """The wanted values, at least one of those in the mask replaced by one that no object has, where there is one."""
    count = wanted.shape[1]
    spoiled = mask & chance.bernoulli(35, count, 4)
    spoiled |= _one_of(chance, mask)
    made = wanted.clone()
    for number, values in enumerate(ATTRIBUTES):
        names = torch.arange(len(values), device=wanted.device)
        lacking = ~(scenes.attributes[:, :, number : number + 1] == names).any(1)
        key = (1 + chance.below(1 << 16, count, len(values))) * 16 + names
        other = (key * lacking.unsqueeze(1)).argmax(2)
        use = spoiled[..., number] & lacking.any(1, keepdim=True)
        made[..., number] = torch.where(use, other, made[..., number])
    return made


def _mixed(chance: Chance, scenes: Scenes, wanted: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """Values that are each on some object and never together: [B, Q, 4], and where they were found, [B, Q] bool.

    Even tries change one attribute of the target, odd ones take each from another object.
    """
    count = wanted.shape[1]
    objects = (scenes.attributes[:, :, 0] >= 0).sum(1).view(-1, 1, 1)
    made, found = wanted, torch.zeros_like(wanted[..., 0], dtype=torch.bool)
    for number in range(TRIES):
        donor = chance.bits(count, 4) * objects >> 32  # what exists comes first
        values = scenes.attributes.gather(1, donor)
        if number % 2 == 0:
            values = torch.where(_one_of(chance, mask), values, wanted)
        right = ~_fits(scenes, values, mask).any(2) & (objects.squeeze(2) > 1)
        made = torch.where((right & ~found).unsqueeze(2), values, made)
        found = found | right
    return made, found


def _one_of(chance: Chance, mask: Tensor) -> Tensor:
    """One attribute of each mask ([B, Q, 4] bool), at random, as a mask."""
    slots = torch.arange(mask.shape[2], device=mask.device)
    # The slot breaks ties, which argmax may break differently on different devices.
    key = (1 + chance.below(1 << 16, *mask.shape[1:])) * 4 + slots
    return slots == (key * mask).argmax(2, keepdim=True)


def _target(chance: Chance, scenes: Scenes, count: int) -> Tensor:
    """A clearly visible object for each query: [B, Q] int64. The largest visible one, where none is clear."""
    seen = scenes.visible.sum(2, dtype=torch.int32)
    clear = (seen >= scenes.area) & (scenes.attributes[:, :, 0] >= 0)
    slots = torch.arange(seen.shape[1], device=seen.device)
    # The slot breaks ties, which argmax may break differently on different devices.
    fallback = (seen * 32 + slots).argmax(1, keepdim=True) == slots
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
    concepts = torch.zeros(*kind.shape, len(MEANINGS), dtype=torch.bool, device=kind.device)
    start = 0
    for number, values in enumerate(ATTRIBUTES):
        said = (mask[..., number] & (kind == 0)).unsqueeze(2)
        names = torch.arange(len(values), device=kind.device)
        concepts[..., start : start + len(values)] = said & (wanted[..., number : number + 1] == names)
        start += len(values)
    concepts[..., MEANINGS.index(OBJECT)] = torch.where(kind == 0, named, kind == 1)
    concepts[..., MEANINGS.index(OUTLINE)] = kind == 2
    return concepts
