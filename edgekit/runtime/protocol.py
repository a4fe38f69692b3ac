"""What a runtime is: an opened artifact that answers, and may measure itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from edgekit.model.spec import Array


class Runtime(Protocol):
    """An artifact that answers. Made by `load`, closed by whoever asked for it."""

    @property
    def device(self) -> str:
        """What runs it, in words: library, version, provider, threads."""

    def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """Answer one batch: arrays by input name in, arrays by output name out."""

    def close(self) -> None:
        """Free everything. A closed runtime is not used again."""


@dataclass(frozen=True)
class Timings:
    """What a runtime measured of itself: every timed run, in order, and facts to tell, one sentence each."""

    milliseconds: tuple[float, ...] = ()
    notes: tuple[str, ...] = ()


@runtime_checkable
class SelfTimed(Protocol):
    """A runtime that measures itself where it lives: a clock here would time the way there too."""

    def clock(self, inputs: Mapping[str, Array], seconds: float) -> Timings:
        """Time one batch for at least so many seconds; no runs where its latency means nothing."""
