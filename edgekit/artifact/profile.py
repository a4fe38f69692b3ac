"""Measurements of `edgekit profile`. The report of a build shows them, or leaves them out if damaged."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, TypeAdapter

from edgekit.artifact.run_record import CACHE
from edgekit.storage import verified_io
from edgekit.storage.files import finite, load_json

FILE = "profile.json"
Number = Annotated[float, BeforeValidator(lambda value: math.nan if value is None else value)]
"""NaN is null in JSON."""


@dataclass(frozen=True)
class GraphBreak:
    """Break of a compiled function: the user's file and line, its text, and PyTorch's reason."""

    file: str
    line: int
    text: str
    reason: str


@dataclass(frozen=True)
class Recompilation:
    """Sizes for which the module was recompiled, and the guard that failed, or the error."""

    sizes: Mapping[str, int]
    guard: str


@dataclass(frozen=True)
class Share:
    """Time of a module or an operator: its own milliseconds, and its number of calls."""

    name: str
    milliseconds: float
    calls: int


@dataclass(frozen=True)
class ModeProfile:
    """One mode at one batch size.

    Attributes:
        mode: Its name.
        device: Description of the device.
        first_ms: From opening to the first answer, compiling included.
        p50: Median of one run, in milliseconds; likewise the percentiles 10 and 90.
        p10: As above.
        p90: As above.
        mean: Mean of all runs, in milliseconds, for break-even.
        memory: Peak bytes that opening it and the first run added; on a GPU those of its memory.
        max_abs: Largest absolute difference from eager's floating outputs, without features, which follow a ranking.
        break_even: Runs after which its total time is less than eager's; 0 if from the first, None if never.
        error: Sentence why it does not run here; empty if it does.
    """

    mode: str
    device: str = ""
    first_ms: Number = math.nan
    p50: Number = math.nan
    p10: Number = math.nan
    p90: Number = math.nan
    mean: Number = math.nan
    memory: int | None = None
    max_abs: float | None = None
    break_even: int | None = None
    error: str = ""

    @property
    def pays(self) -> str:
        """Number of runs after which its total time is less than eager's."""
        if self.break_even is None:
            return "never"
        return f"after {self.break_even:,} runs" if self.break_even else "at once"


@dataclass(frozen=True)
class BatchProfile:
    """All modes at one batch size.

    Attributes:
        batch: Rows of one run; 0 if the model has no batch axis.
        flops: Operations of one run in matrix products, convolutions and attention.
        bytes: Least bytes that one run must move: weights, inputs and outputs.
        modes: Eager first, then the quickest first.
    """

    batch: int
    flops: int
    bytes: int
    modes: Annotated[tuple[ModeProfile, ...], Field(min_length=1)]

    def speed(self, row: ModeProfile) -> str:
        """Return how many times as fast as eager."""
        return f"{self.modes[0].p50 / row.p50:.2f}x" if row.p50 > 0 else ""


@dataclass(frozen=True)
class Peaks:
    """Peak rates of a device, measured with a profile: FLOP/s in an fp32 matrix product, bytes/s in a copy."""

    flops: float
    bandwidth: float


@dataclass(frozen=True)
class Profile:
    """Measurements of a model.

    Attributes:
        model: Its name.
        device: "cpu" or "cuda".
        peaks: Peak rates of the device.
        batches: Profiles by batch size.
        breaks: Breaks of the compiled module.
        unexplained: Why the breaks could not be found; empty if they were.
        recompilations: Sizes that were recompiled.
        sizes: The tested sizes, in order.
        modules: Eager time by module.
        operators: Eager time by operator, or by kernel on a GPU.
        kernels: Time by operator or kernel of the compiled module; empty without it.
        left_out: Artifacts that were not timed, and why.
        advice: Recommended mode.
        artifacts: sha256 of each artifact of the build, by folder: a profile of earlier ones is not shown.
    """

    model: str
    device: str
    peaks: Peaks
    batches: tuple[BatchProfile, ...]
    breaks: tuple[GraphBreak, ...]
    unexplained: str
    recompilations: tuple[Recompilation, ...]
    sizes: tuple[Mapping[str, int], ...]
    modules: tuple[Share, ...]
    operators: tuple[Share, ...]
    kernels: tuple[Share, ...]
    left_out: tuple[str, ...]
    advice: str
    artifacts: Mapping[str, str]

    def as_record(self) -> dict[str, Any]:
        """Return the profile for JSON; NaN is null."""
        return {"schema_version": 1, **finite(asdict(self))}


def read_profile(build: Path, artifacts: Mapping[str, str]) -> Profile | None:
    """Return the profile of a build; None if it is missing, unreadable or of other artifacts.

    Args:
        build: Its folder.
        artifacts: sha256 of each artifact in the build, by folder.
    """
    try:
        profile = TypeAdapter(Profile).validate_python(load_json(verified_io.read_bytes(build, f"{CACHE}/{FILE}")))
        # A profile of other artifacts is out of date.
        return profile if profile.artifacts.items() <= artifacts.items() else None
    except (OSError, ValueError):
        return None
