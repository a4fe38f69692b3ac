"""Naming: queries about scenes whose objects have names, with or without attributes."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from edgekit_arrcoc.counter_rng import Chance
from edgekit_arrcoc.queries import ATTRIBUTES, DRAWN, MEANINGS, NAMES, NOUNS, OBJECT, OUTLINE, UNSURE
from training import questions
from training.questions import ABSENT, HARD, NAMED, SHARES, SUBSETS, TRIES, Posed, _subset, _target
from training.scenes import Scenes
from training.sprites import Sprites, group_of

PARTS = (*(len(values) for values in ATTRIBUTES), len(NOUNS), len(NAMES) - len(NOUNS))
"""How many values each part of a query has: size, colour, texture, shape, noun, group."""

STARTS = tuple(
    start + 2 * (number >= len(ATTRIBUTES)) for number, start in enumerate(sum(PARTS[:at]) for at in range(len(PARTS)))
)
"""The first concept of each part; `object` and `outline` are between the shapes and the nouns."""

ASKED = (
    (46, (0, 0, 0, 0, 1, 0)),
    (12, (1, 0, 0, 0, 1, 0)),
    (16, (0, 1, 0, 0, 1, 0)),
    (3, (1, 1, 0, 0, 1, 0)),
    (9, (0, 0, 0, 0, 0, 1)),
    (3, (1, 0, 0, 0, 0, 1)),
    (3, (0, 1, 0, 0, 0, 1)),
    (4, (0, 1, 0, 0, 0, 0)),
    (4, (1, 0, 0, 0, 0, 0)),
)
"""Of a hundred queries about a sprite, how many name which parts."""

ELSEWHERE = 7
"""Of a hundred queries about scenes without sprites, how many ask for a noun or a group, which is not there."""

NOUN, GROUP = 4, 5

KNOWN = torch.tensor([name not in UNSURE for name in NAMES])
"""Which of `NAMES` the shipped model answers to: [names] bool."""


def pose(scenes: Scenes, seeds: Tensor, count: int, shares: tuple[int, int] = (ABSENT, HARD)) -> Posed:
    """Pose so many queries about each scene with sprites; arguments as for `questions.pose`.

    What nobody can say of a scene is not asked. A group's word fits all that is of the group.
    """
    chance = Chance(seeds)
    device = seeds.device
    facts = _facts(scenes)
    exists = scenes.attributes[:, :, 0] >= 0
    target = _target(chance, scenes, count)
    wanted = facts.gather(1, target.unsqueeze(2).expand(-1, -1, len(PARTS)))
    sprite = wanted[..., NOUN] >= 0
    drawn = torch.cat([torch.tensor(SUBSETS), torch.zeros(len(SUBSETS), 2, dtype=torch.int64)], 1).to(device)
    mask = torch.where(sprite.unsqueeze(2), _parts(chance, count), drawn[_subset(chance, count)]).to(torch.bool)
    mask[..., 1] &= ~scenes.grey.unsqueeze(1)
    mask &= wanted >= 0
    mask[..., NOUN] |= sprite & ~mask.any(2)
    mask[..., 3] |= ~sprite & ~mask.any(2) & (wanted[..., 3] >= 0)
    roll = chance.below(100, count)
    kind = (roll >= SHARES[0]).to(torch.int64) + (roll >= SHARES[0] + SHARES[1]).to(torch.int64)
    kind = torch.where(mask.any(2), kind, 1 + chance.below(2, count))  # of a scene without objects
    roll = chance.below(100, count)
    hard = (kind == 0) & (roll >= shares[0]) & (roll < shares[0] + shares[1])
    wanted, mask, mixed = _mixed(chance, facts, exists, wanted, mask, hard, scenes.grey)
    absent = (kind == 0) & (roll < shares[0] + shares[1]) & ~mixed
    wanted = torch.where(absent.unsqueeze(2), _missing(chance, facts, wanted, mask), wanted)
    said = scenes.unclear.gather(1, wanted.clamp(min=0).flatten(1)).view_as(mask)
    mask = mask & ~said
    kind = torch.where((kind == 0) & ~mask.any(2), 1, kind)
    fits = _fits(facts, exists, wanted, mask)
    somewhere = ((facts.unsqueeze(1) == wanted.unsqueeze(2)).any(2) | ~mask).all(2)
    answer = torch.where(fits.any(2), 0, torch.where(somewhere, 2, 1)) * (kind == 0)
    fits = torch.where((kind == 0).unsqueeze(2), fits, exists.unsqueeze(1))
    concepts = torch.zeros(*kind.shape, len(MEANINGS), dtype=torch.bool, device=device)
    said = mask & (kind == 0).unsqueeze(2)
    concepts.scatter_(2, torch.where(said, wanted, MEANINGS.index(OBJECT)), said)
    named = chance.bernoulli(NAMED, count) & ~said[..., NOUN:].any(2)
    concepts[..., MEANINGS.index(OBJECT)] = torch.where(kind == 0, named, kind == 1)
    concepts[..., MEANINGS.index(OUTLINE)] = kind == 2
    return Posed(kind, answer, concepts, fits)


def poser(sprites: Sprites | None) -> Callable[..., Posed]:
    """What poses queries about scenes that were rendered with these sprites, or without any."""
    return questions.pose if sprites is None else pose


def elsewhere(posed: Posed, seeds: Tensor) -> Posed:
    """The queries of scenes without sprites, some of them replaced by one for a noun or a group."""
    chance = Chance(seeds).branch(torch.arange(len(seeds), device=seeds.device))
    count = posed.kind.shape[1]
    chosen = chance.bernoulli(ELSEWHERE, count)
    word = len(DRAWN) + chance.below(len(NAMES), count)
    concepts = torch.zeros_like(posed.concepts).scatter_(2, word.unsqueeze(2), True)
    return Posed(
        torch.where(chosen, 0, posed.kind),
        torch.where(chosen, 1, posed.answer),
        torch.where(chosen.unsqueeze(2), concepts, posed.concepts),
        posed.fits & ~chosen.unsqueeze(2),
    )


def _facts(scenes: Scenes) -> Tensor:
    """The concept of each part of each object, -1 where it has none or nobody knows: [B, P, 6] int64."""
    device = scenes.attributes.device
    groups = group_of().to(device)
    nouns = scenes.nouns
    named = torch.where(nouns >= 0, nouns + STARTS[NOUN], -1)
    group = torch.where(nouns >= 0, groups[nouns.clamp(min=0)], -1)
    starts = torch.tensor(STARTS[:NOUN], device=device)
    own = torch.where(scenes.attributes >= 0, scenes.attributes + starts, -1)
    return torch.cat([own, named.unsqueeze(2), group.unsqueeze(2)], 2)


def _parts(chance: Chance, count: int) -> Tensor:
    """Which parts queries about sprites name: [B, Q, 6] int64."""
    table = torch.tensor([parts for share, parts in ASKED for _ in range(share)], device=chance.device)
    return table[chance.below(len(table), count)]


def _fits(facts: Tensor, exists: Tensor, wanted: Tensor, mask: Tensor) -> Tensor:
    equal = facts.unsqueeze(1) == wanted.unsqueeze(2)
    return (equal | ~mask.unsqueeze(2)).all(3) & exists.unsqueeze(1)


def _missing(chance: Chance, facts: Tensor, wanted: Tensor, mask: Tensor) -> Tensor:
    """The wanted values, one of those in the mask (a noun or a group first) replaced by one that no object has."""
    count = wanted.shape[1]
    slots = torch.arange(len(PARTS), device=wanted.device)
    key = (
        1 + chance.below(1 << 10, count, len(PARTS)) + 4096 * (slots >= NOUN) * chance.bernoulli(75, count, 1)
    ) * 8 + slots
    spoiled = slots == (key * mask).argmax(2, keepdim=True)
    made = wanted.clone()
    for number, (size, start) in enumerate(zip(PARTS, STARTS, strict=True)):
        other, lacking = wanted[..., number], torch.zeros_like(mask[..., number])
        for _ in range(4):
            drawn = start + chance.below(size, count)
            free = ~(facts[:, None, :, number] == drawn.unsqueeze(2)).any(2)
            other = torch.where(free & ~lacking, drawn, other)
            lacking = lacking | free
        made[..., number] = torch.where(spoiled[..., number] & lacking, other, made[..., number])
    return made


def _mixed(
    chance: Chance, facts: Tensor, exists: Tensor, wanted: Tensor, mask: Tensor, hard: Tensor, grey: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Values that are each on some object and never together: wanted, mask and where they were found, [B, Q] bool.

    A query that names one part gets a second one: a colour or a size.
    """
    count = wanted.shape[1]
    second = torch.where(chance.bernoulli(70, count) & ~grey.unsqueeze(1), 1, 0)
    wider = mask | ((mask.sum(2) == 1) & hard).unsqueeze(2) & (
        torch.arange(len(PARTS), device=mask.device) == second.unsqueeze(2)
    )
    objects = exists.sum(1).view(-1, 1, 1)
    made, made_mask, found = wanted, mask, torch.zeros_like(hard)
    for _ in range(TRIES):
        donor = chance.bits(count, len(PARTS)) * objects >> 32  # what exists comes first
        values = facts.gather(1, donor)
        key = (1 + chance.below(1 << 10, count, len(PARTS))) * 8 + torch.arange(len(PARTS), device=mask.device)
        changed = key == (key * wider).amax(2, keepdim=True)
        values = torch.where(changed | (wanted < 0), values, wanted)
        known = (values >= 0) | ~wider
        right = hard & ~found & known.all(2) & (wider.sum(2) > 1) & ~_fits(facts, exists, values, wider).any(2)
        made = torch.where(right.unsqueeze(2), values, made)
        made_mask = torch.where(right.unsqueeze(2), wider, made_mask)
        found = found | right
    return made, made_mask, found
