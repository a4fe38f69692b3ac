"""What every step of one run shares: the model, its build folder, the targets, the reference, who listens."""

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
    """Inputs that are drawn beside the recorded ones: for how many seconds, and by which seed."""

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
        listener: Told what happens.
        fresh: Whether to do again what is done and unchanged.
        trusted: Whether code that the build brings may run.
        signed: What the build's signature vouches for; None where none was asked for.
        fresh_inputs: What verified artifacts are asked beside the recorded inputs; None for nothing.
        other_code: That the model's code is not what the build was exported with, in a sentence; empty where it is.
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

    @property
    def limits(self) -> Limits:
        """What each worker may take, by the size of the model's files."""
        return limits_for(sum(path.stat().st_size for path in self.folder(MODEL).rglob("*") if path.is_file()))

    def folder(self, name: str) -> Path:
        """A target's artifact, or one of the folders MODEL, PROGRAM, REFERENCE."""
        return self.root / name


class Listener:
    """Told what happens; this one shows nothing."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Nothing to end."""

    def started(self, targets: tuple[str, ...], expected: Mapping[str, float]) -> None:
        """The run has begun, with these targets in this order, which took these seconds in an earlier run."""

    def progress(self, name: str, share: float, text: str) -> None:
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
        record = load_json(verified_io.read_bytes(cache, DURATIONS))
        durations = [(target, seconds) for target, seconds in record.items() if isinstance(seconds, int | float)]
        return {target: float(seconds) for target, seconds in durations if 0 <= seconds < LONGEST}
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
