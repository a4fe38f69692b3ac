"""Who is told what a run does: the pipeline's protocols, and a listener that shows nothing."""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType
from typing import Protocol, Self

from edgekit.pipeline.outcome import TargetOutcome


class StepListener(Protocol):
    """Told what a step does."""

    def progress(self, name: str, done: float, text: str) -> None:
        """A step is done to this share in [0, 1]."""

    def done(self, name: str) -> None:
        """A step that is no target has ended."""


class Listener(StepListener, Protocol):
    """Told what happens, and how each target ended."""

    def started(self, targets: tuple[str, ...], expected: Mapping[str, float]) -> None:
        """The run has begun, with these targets in this order, which took these seconds in an earlier run."""

    def finished(self, outcome: TargetOutcome) -> None:
        """A target has ended."""


class Silent:
    """Shows nothing."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Nothing to end."""

    def started(self, targets: tuple[str, ...], expected: Mapping[str, float]) -> None:
        """Not shown."""

    def progress(self, name: str, done: float, text: str) -> None:
        """Not shown."""

    def done(self, name: str) -> None:
        """Not shown."""

    def finished(self, outcome: TargetOutcome) -> None:
        """Not shown."""
