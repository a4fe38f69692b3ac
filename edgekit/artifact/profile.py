"""What `edgekit profile` measured of a model; of a build the report shows it, or leaves it out where it is damaged."""

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
"""In JSON null where it is none."""


@dataclass(frozen=True)
class GraphBreak:
    """Where a compiled function is cut: the user's file and line, its text, and PyTorch's reason."""

    file: str
    line: int
    text: str
    reason: str


@dataclass(frozen=True)
class Recompilation:
    """Sizes for which the module was compiled anew, and the guard that failed; or why it fails for them."""

    sizes: Mapping[str, int]
    guard: str


@dataclass(frozen=True)
class Share:
    """Time of a module or an operator: milliseconds of its own, and how often it was called."""

    name: str
    milliseconds: float
    calls: int


@dataclass(frozen=True)
class ModeProfile:
    """One mode at one batch size.

    Attributes:
        mode: Its name.
        device: What ran it, in words.
        first_ms: From opening to the first answer, compiling included.
        p50: Median of one run, in milliseconds; likewise the percentiles 10 and 90.
        p10: As above.
        p90: As above.
        mean: Of all runs, in milliseconds: what break-even follows from.
        memory: Bytes that opening it and the first run added at their peak; on a GPU those of its memory.
        max_abs: Largest absolute difference from eager's floating outputs; features, which follow a ranking, aside.
        break_even: Runs after which it has taken less time than eager in all; 0 if from the first, None if never.
        error: Why it does not run here, in a sentence; empty where it does.
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
        """After how many runs it has taken less time than eager."""
        if self.break_even is None:
            return "never"
        return f"after {self.break_even:,} runs" if self.break_even else "at once"


@dataclass(frozen=True)
class BatchProfile:
    """All modes at one batch size.

    Attributes:
        batch: Rows of one run; 0 where the model has no batch axis.
        flops: Of one run in matrix products, convolutions and attention.
        bytes: Least that one run must move: weights, inputs and outputs.
        modes: Eager first, then the quickest first.
    """

    batch: int
    flops: int
    bytes: int
    modes: Annotated[tuple[ModeProfile, ...], Field(min_length=1)]

    def speed(self, row: ModeProfile) -> str:
        """How many times as fast as eager."""
        return f"{self.modes[0].p50 / row.p50:.2f}x" if row.p50 > 0 else ""


@dataclass(frozen=True)
class Peaks:
    """Peak rates of a device, measured beside a profile: FLOP/s in an fp32 matrix product, bytes/s in a copy."""

    flops: float
    bandwidth: float


@dataclass(frozen=True)
class Profile:
    """What was measured.

    Attributes:
        model: Its name.
        device: "cpu" or "cuda".
        peaks: Of the device, just now.
        batches: By batch size.
        breaks: Where compiling cuts the module.
        unexplained: Why the breaks could not be found; empty where they were.
        recompilations: Sizes that compiled anew.
        sizes: The sizes that were asked for that, in their order.
        modules: Eager time by module.
        operators: Eager time by operator, or by kernel on a GPU.
        kernels: Time by operator or kernel of the compiled module; empty where it was not compiled.
        left_out: Artifacts that were not timed, and why.
        advice: Which mode to take.
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
        """As JSON: what is no number is null."""
        return {"schema_version": 1, **finite(asdict(self))}


def read_profile(build: Path, artifacts: Mapping[str, str]) -> Profile | None:
    """The profile of a build; None where there is none that can be read, or an artifact is another one now.

    Args:
        build: Its folder.
        artifacts: sha256 of each artifact that is there, by folder.
    """
    try:
        profile = TypeAdapter(Profile).validate_python(load_json(verified_io.read_bytes(build, f"{CACHE}/{FILE}")))
        return profile if profile.artifacts.items() <= artifacts.items() else None
    except (OSError, ValueError):
        return None
