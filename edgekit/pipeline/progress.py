"""Progress of a run for people: a live view on a terminal or in a notebook, lines elsewhere, or nothing."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from edgekit.errors import UsageError
from edgekit.pipeline.durations import words
from edgekit.pipeline.listener import Silent
from edgekit.pipeline.live_view import Live, live_in_notebook
from edgekit.pipeline.outcome import TargetOutcome

Style = Literal["auto", "live", "lines", "none"]
EVERY = 10.0  # seconds between two lines of one step


@dataclass
class Lines(Silent):
    """Lines on standard error: where a step begins, what it does every ten seconds, and how it ended.

    Attributes:
        clock: Seconds.
        order: The targets of the run.
        began: When each step began.
        told: When each step was last told of.
    """

    clock: Callable[[], float] = time.monotonic
    order: tuple[str, ...] = ()
    began: dict[str, float] = field(default_factory=dict)
    told: dict[str, float] = field(default_factory=dict)

    def started(self, targets: tuple[str, ...], expected: Mapping[str, float]) -> None:
        """Know the order, so that each line can say which of how many."""
        self.order = targets

    def progress(self, name: str, done: float, text: str) -> None:
        """Write a line at the beginning of a step, and then at most one every ten seconds."""
        now = self.clock()
        self.began.setdefault(name, now)
        if name not in self.told or now - self.told[name] >= EVERY:
            self.told[name] = now
            self._write(name, text)

    def finished(self, outcome: TargetOutcome) -> None:
        """Write how a target ended, and how long it took."""
        why = "".join(f" - {sentence}" for sentence in outcome.sentences[:1] if outcome.status != "verified")
        began = self.began.get(outcome.target)  # None where only places were asked, which are steps of their own
        took = "" if began is None else f" ({words(self.clock() - began)})"
        note = " (unchanged)" if outcome.reused else took
        self._write(outcome.target, f"{outcome.status}{note}{why}")

    def _write(self, name: str, text: str) -> None:
        number = f"[{self.order.index(name) + 1}/{len(self.order)}] " if name in self.order else ""
        sys.stderr.write(f"{number}{name}: {text}\n")
        sys.stderr.flush()


def shown(style: Style) -> Silent:
    """The listener of a style; "auto" is live on a terminal and in a notebook that can show it, and lines elsewhere."""
    kinds: dict[str, type[Silent]] = {"live": Live, "lines": Lines, "none": Silent}
    if style == "auto":
        style = "live" if sys.stderr.isatty() or live_in_notebook() else "lines"
    if style not in kinds:
        raise UsageError(f"no progress '{style}': possible are auto, {', '.join(kinds)}")
    return kinds[style]()
