"""What `edgekit profile` measured of a build, as the report shows it: read tolerantly, left out where it is damaged."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field

from edgekit.artifact.run_record import CACHE
from edgekit.storage import door
from edgekit.storage.files import load_json

FILE = "profile.json"


class _Read(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


class ModeInfo(_Read):
    """A mode's times in milliseconds; None where it does not run."""

    mode: str
    first_ms: float | None
    p50: float | None
    p10: float | None
    p90: float | None
    memory: int | None
    break_even: int | None
    error: str

    @property
    def pays(self) -> str:
        """After how many runs it has taken less time than eager."""
        if self.break_even is None:
            return "never"
        return f"after {self.break_even:,} runs" if self.break_even else "at once"


class BatchInfo(_Read):
    """The modes at one batch size, eager first."""

    batch: int
    modes: tuple[ModeInfo, ...] = Field(min_length=1)

    def speed(self, row: ModeInfo) -> str:
        """How many times as fast as eager."""
        eager = self.modes[0].p50
        return f"{eager / row.p50:.2f}x" if eager and row.p50 else ""


class BreakInfo(_Read):
    """Where compiling cuts the module."""

    file: str
    line: int
    text: str
    reason: str


class AnewInfo(_Read):
    """Sizes that were compiled anew."""

    sizes: dict[str, int]
    guard: str


class ProfileInfo(_Read):
    """A profile."""

    device: str
    batches: tuple[BatchInfo, ...]
    breaks: tuple[BreakInfo, ...]
    recompilations: tuple[AnewInfo, ...]
    advice: str
    artifacts: dict[str, str]


def read_profile(build: Path, artifacts: Mapping[str, str]) -> ProfileInfo | None:
    """The profile of a build; None where there is none that can be read, or an artifact is another one now.

    Args:
        build: Its folder.
        artifacts: sha256 of each artifact that is there, by folder.
    """
    try:
        profile = ProfileInfo.model_validate(load_json(door.read_bytes(build, f"{CACHE}/{FILE}")))
        return profile if profile.artifacts.items() <= artifacts.items() else None
    except (OSError, ValueError):
        return None
