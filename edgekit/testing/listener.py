"""A listener for tests: it remembers how each target ended and shows nothing."""

from __future__ import annotations

from edgekit.pipeline.listener import Listener
from edgekit.pipeline.outcome import TargetOutcome


class QuietListener(Listener):
    """Remembers outcomes."""

    def __init__(self) -> None:
        self.outcomes: list[TargetOutcome] = []

    def finished(self, outcome: TargetOutcome) -> None:
        """Remembered."""
        self.outcomes.append(outcome)
