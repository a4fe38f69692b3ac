"""What every step of one run shares: the model, its build folder, the targets, the reference, who listens."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from edgekit.artifact.run_record import MODEL
from edgekit.artifact.signed import Signed
from edgekit.model.spec import ModelSpec
from edgekit.pipeline.listener import Listener
from edgekit.reference.store import Reference
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
    signed: Signed | None = None
    other_code: str = ""
    fresh_inputs: FreshInputs | None = None

    @property
    def limits(self) -> Limits:
        """What each worker may take, by the size of the model's files."""
        return limits_for(sum(path.stat().st_size for path in self.folder(MODEL).rglob("*") if path.is_file()))

    def folder(self, name: str) -> Path:
        """A target's artifact, or one of the folders MODEL, PROGRAM, REFERENCE."""
        return self.root / name
