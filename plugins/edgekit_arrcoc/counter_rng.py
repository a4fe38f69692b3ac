"""Random integers that are the same on every platform, device and library version.

A counter-based generator: the n-th number of a stream is a hash of (seed, stream, n), as in Salmon et al., 2011
(https://doi.org/10.1145/2063384.2063405). Only integer operations on int64 that cannot overflow.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

MASK = 0xFFFFFFFF
"""Lowest 32 bits."""


def scramble(values: Tensor) -> Tensor:
    """Return a bijection of 32-bit numbers without visible structure: int64 in [0, 2^32) -> the same range.

    The xor-shift-multiply form of https://github.com/skeeto/hash-prospector with multipliers below 2^31, so that every
    product fits in 63 bits.
    """
    values = values ^ (values >> 16)
    values = (values * 0x7FEB352D) & MASK
    values = values ^ (values >> 15)
    values = (values * 0x31848BAB) & MASK
    return values ^ (values >> 14)


class Chance:
    """Streams of random integers, one row per seed; every call draws from a new stream.

    Args:
        seeds: [B] int64 in [0, 2^32).
    """

    def __init__(self, seeds: Tensor) -> None:
        self._key = scramble(scramble(seeds) ^ 0x5EED)
        self._stream = 0

    @property
    def device(self) -> torch.device:
        """The device on which the numbers are drawn."""
        return self._key.device

    def branch(self, rows: Tensor) -> Chance:
        """Return independent streams for some of the rows ([n] int64); a row's numbers do not depend on the others."""
        self._stream += 1
        child = Chance(torch.zeros(0, dtype=torch.int64, device=self.device))
        child._key = scramble((self._key[rows] + self._stream * 0x632BE5AB) & MASK)
        return child

    def bits(self, *shape: int) -> Tensor:
        """Draw uniform integers in [0, 2^32): [B, *shape] int64."""
        self._stream += 1
        key = scramble((self._key + self._stream * 0x632BE5AB) & MASK)
        index = torch.arange(math.prod(shape), device=key.device)
        return scramble(scramble(index) ^ key.unsqueeze(1)).view(len(key), *shape)

    def below(self, limit: int, *shape: int) -> Tensor:
        """Draw uniform integers in [0, limit): [B, *shape] int64; limit below 2^31."""
        return (self.bits(*shape) * limit) >> 32

    def between(self, low: int, high: int, *shape: int) -> Tensor:
        """Draw uniform integers in [low, high], both included: [B, *shape] int64."""
        return low + self.below(high - low + 1, *shape)

    def bernoulli(self, percent: int, *shape: int) -> Tensor:
        """Draw True with this percentage: [B, *shape] bool."""
        return self.below(100, *shape) < percent
