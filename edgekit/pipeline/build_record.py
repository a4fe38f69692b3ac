"""What `--json` of export, verify and quantize prints.

`build.schema.json`, which programs may rely on, is made from it. A field may come with any version of edgekit;
`schema_version` rises where one is renamed, removed or means something else.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from edgekit.artifact.fact import Fact
from edgekit.artifact.result import Measure, Timing


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class ToldFact(Fact):
    """A fact of a verdict, where it was found, and in words.

    Attributes:
        place: Where it was found; empty where it concerns the artifact.
        sentence: The fact for people; its words may change, its code does not.
    """

    place: str = ""
    sentence: str


class PlaceRecord(_Record):
    """What was found in one place.

    Attributes:
        place: Its name.
        device: What ran it, in words.
        status: "verified", "rejected" or "not verified here".
        variant: The bundle's model that ran there; empty for a single model.
        errors: What was judged on the evaluation set, each number with its limit.
    """

    place: str
    device: str = ""
    status: str
    variant: str = ""
    errors: tuple[Measure, ...] = ()


class TargetRecord(_Record):
    """What became of one target.

    Attributes:
        target: Its name.
        status: "verified", "rejected", "not verified here", "over budget", "failed" or "skipped".
        path: The artifact's folder.
        error: Why it failed or was skipped, in a sentence; else empty.
        reused: Whether nothing had to be done.
        part_of: The bundle that it was made for, where nobody named it.
        size: Bytes of the entry file or folder; null where there is no artifact.
        reasons: Why it is not verified.
        notes: What a reader should know, whatever the status.
        exporter_notes: What the exporter said.
        latency_ms: Its own latency in milliseconds, by place.
        places: What was found in each place.
    """

    target: str
    status: str
    path: str
    error: str = ""
    reused: bool = False
    part_of: str = ""
    size: int | None = None
    reasons: tuple[ToldFact, ...] = ()
    notes: tuple[ToldFact, ...] = ()
    exporter_notes: tuple[str, ...] = ()
    latency_ms: dict[str, Timing] = {}
    places: tuple[PlaceRecord, ...] = ()


class BuildRecord(_Record):
    """A build: `edgekit export --json`.

    Attributes:
        schema_version: Of this record.
        artifacts: One a target, in the order of the run.
        path: The model's build folder.
        report: The report's page.
        reference: What the artifacts were judged by, in words.
        trials: Of `edgekit quantize`: each quantization that was tried.
    """

    schema_version: Literal[2] = 2
    artifacts: tuple[TargetRecord, ...]
    path: str
    report: str
    reference: str
    trials: tuple[dict[str, Any], ...] = ()
