"""State that every step of one run shares: model, build folder, targets, reference and listener."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from edgekit.artifact.run_record import MODEL
from edgekit.artifact.signed import SignatureInfo
from edgekit.model.spec import ModelSpec
from edgekit.pipeline.outcome import TargetOutcome
from edgekit.reference.store import Reference
from edgekit.storage import verified_io
from edgekit.storage.files import dump_json, load_json, write_text
from edgekit.storage.limits import Limits, limits_for
from edgekit.target import Target


@dataclass(frozen=True)
class FreshInputs:
    """Inputs drawn in addition to the recorded ones, for some seconds, with a seed."""

    seconds: float
    seed: int


@dataclass(frozen=True)
class RunContext:
    """One run over one model's build folder.

    Attributes:
        spec: The model.
        root: Its folder, `build/<model>`.
        targets: All targets that can be imported, by name.
        recorded: The reference.
        listener: Receives progress callbacks.
        fresh: True to redo steps whose inputs are unchanged.
        trusted: True if code in the build may run.
        signed: Files that the build's signature covers; None if no signature is required.
        fresh_inputs: Inputs for verified artifacts in addition to the recorded ones; None for none.
        selected: Targets that the user selected, by name or group.
        task_limits: True if the user's own inputs and metric suffice, whatever made inputs show.
        other_code: Sentence that says that the model's code changed since the export; empty if it did not.
    """

    spec: ModelSpec
    root: Path
    targets: Mapping[str, Target]
    recorded: Reference
    listener: Listener
    fresh: bool
    trusted: bool = True
    signed: SignatureInfo | None = None
    other_code: str = ""
    fresh_inputs: FreshInputs | None = None
    task_limits: bool = False
    selected: Collection[str] = ()

    @property
    def limits(self) -> Limits:
        """Resource limits of each worker, from the size of the model's files."""
        return limits_for(sum(path.stat().st_size for path in self.folder(MODEL).rglob("*") if path.is_file()))

    def folder(self, name: str) -> Path:
        """Return the folder of a target's artifact, or one of MODEL, PROGRAM, REFERENCE."""
        return self.root / name


class Listener:
    """Progress callbacks of a run; this one shows nothing."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Do nothing."""

    def started(self, targets: tuple[str, ...], expected: Mapping[str, float]) -> None:
        """Announce the targets of a run in order, with their seconds in an earlier run."""

    def progress(self, name: str, share: float, text: str) -> None:
        """Report that a step is done to this share in [0, 1]."""

    def done(self, name: str) -> None:
        """Report that a step that is not a target has ended."""

    def finished(self, outcome: TargetOutcome) -> None:
        """Report that a target has ended."""


DURATIONS = "durations.json"
# Seconds. A worker is stopped long before.
LONGEST = 1e7


def read_durations(cache: Path) -> dict[str, float]:
    """Return seconds by target; empty if the file is missing or unusable. They are only estimates for display."""
    try:
        record = load_json(verified_io.read_bytes(cache, DURATIONS))
        durations = [(target, seconds) for target, seconds in record.items() if isinstance(seconds, int | float)]
        return {target: float(seconds) for target, seconds in durations if 0 <= seconds < LONGEST}
    except (OSError, ValueError, AttributeError):
        return {}


def write_duration(cache: Path, target: str, seconds: float) -> None:
    """Record the seconds that a target took."""
    cache.mkdir(parents=True, exist_ok=True)
    write_text(cache / DURATIONS, dump_json({**read_durations(cache), target: round(seconds, 1)}))


def remaining(expected: Mapping[str, float], targets: Collection[str], spent: Mapping[str, float]) -> float | None:
    """Return the seconds that targets still take; None if the duration of any is unknown.

    Args:
        expected: Seconds by target, of an earlier run.
        targets: Targets that still run or wait.
        spent: Seconds by target so far.
    """
    if any(target not in expected for target in targets):
        return None
    return sum(max(expected[target] - spent.get(target, 0.0), 0.0) for target in targets)


def words(seconds: float) -> str:
    """Return a duration as text: "9 s", "2 min 05 s"."""
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest:02d} s" if minutes else f"{rest} s"
