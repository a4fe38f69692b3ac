"""Who is told what a run does: a listener that shows nothing, and how long targets took in earlier runs."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from edgekit.pipeline.outcome import TargetOutcome
from edgekit.storage import door
from edgekit.storage.files import dump_json, load_json, write_text


class Listener:
    """Told what happens; this one shows nothing."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Nothing to end."""

    def started(self, targets: tuple[str, ...], expected: Mapping[str, float]) -> None:
        """The run has begun, with these targets in this order, which took these seconds in an earlier run."""

    def progress(self, name: str, done: float, text: str) -> None:
        """A step is done to this share in [0, 1]."""

    def done(self, name: str) -> None:
        """A step that is no target has ended."""

    def finished(self, outcome: TargetOutcome) -> None:
        """A target has ended."""


DURATIONS = "durations.json"
LONGEST = 1e7  # seconds; a worker is stopped long before


def read_durations(cache: Path) -> dict[str, float]:
    """Seconds by target; empty where nothing usable was written. They are estimates: nothing is decided by them."""
    try:
        found = load_json(door.read_bytes(cache, DURATIONS))
        told = [(target, seconds) for target, seconds in found.items() if isinstance(seconds, int | float)]
        return {target: float(seconds) for target, seconds in told if 0 <= seconds < LONGEST}
    except (OSError, ValueError, AttributeError):
        return {}


def write_duration(cache: Path, target: str, seconds: float) -> None:
    """Note how long a target took."""
    cache.mkdir(parents=True, exist_ok=True)
    write_text(cache / DURATIONS, dump_json({**read_durations(cache), target: round(seconds, 1)}))


def remaining(expected: Mapping[str, float], targets: Collection[str], spent: Mapping[str, float]) -> float | None:
    """Seconds that targets still take; None where the duration of any is unknown.

    Args:
        expected: Seconds by target, of an earlier run.
        targets: What has not ended.
        spent: Seconds by target that they have taken so far.
    """
    if any(target not in expected for target in targets):
        return None
    return sum(max(expected[target] - spent.get(target, 0.0), 0.0) for target in targets)


def words(seconds: float) -> str:
    """A duration for people: "9 s", "2 min 05 s"."""
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest:02d} s" if minutes else f"{rest} s"
