"""What static quantization is told: a configuration, and what was observed of each tensor."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Literal

import numpy as np

from edgekit.model.spec import Array

Method = Literal["minmax", "entropy", "percentile"]
METHODS: tuple[Method, ...] = ("minmax", "entropy", "percentile")
Activation = Literal["uint8", "int8"]


@dataclass(frozen=True)
class QuantConfig:
    """How activations get their ranges, what is rounded, and what is not.

    Attributes:
        method: How a range is made of what was seen.
        activation: Type of quantized activations; `uint8` is asymmetric, `int8` symmetric.
        per_channel: Whether each output channel of a weight has a scale of its own.
        reduce_range: Whether weights have 7 bits, so that pairs of products fit 16 bits where there is no VNNI.
        floats: Groups that stay in float arithmetic, sorted.
    """

    method: Method = "minmax"
    activation: Activation = "uint8"
    per_channel: bool = True
    reduce_range: bool = False
    floats: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        """A text that is equal for equal configurations."""
        return json.dumps(asdict(self), sort_keys=True)

    @property
    def name(self) -> str:
        """What tables call it."""
        words: list[str] = [self.method, self.activation]
        words += [] if self.per_channel else ["per-tensor"]
        words += ["reduced range"] if self.reduce_range else []
        if self.floats:
            words.append("1 group in float" if len(self.floats) == 1 else f"{len(self.floats)} groups in float")
        return ", ".join(words)

    def keeping(self, *groups: str) -> QuantConfig:
        """The same configuration with these groups in float, and no others."""
        return replace(self, floats=tuple(sorted(groups)))


@dataclass(frozen=True)
class ObservedRange:
    """One tensor on all samples: smallest and largest value to represent, by method, always with zero between them.

    `low` and `high` are the smallest and largest value of each entry of the last axis, [channels]; `rows` are the
    vectors of the last axis, for one sample.
    """

    ranges: Mapping[Method, tuple[float, float]]
    low: Array
    high: Array
    rows: int

    @property
    def elements(self) -> int:
        """Values in the tensor, for one sample."""
        return self.rows * len(self.low)

    @property
    def peaks(self) -> Array:
        """Largest magnitude of each entry of the last axis, [channels]."""
        return np.maximum(-self.low, self.high)
