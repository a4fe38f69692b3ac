"""Result of one artifact on one host: `result.json`, next to the manifest.

The manifest describes an artifact and never varies; a result has a host's measurements, with times and devices. A phone
or a browser writes the same file, and `edgekit report` reads all of them. The maps for a report are in
`scores-<place>.safetensors`: for each output with the role "scores" one array [n, N] over the evaluation images. A
model without scores has `errors-<place>.safetensors`: for each output of floats one array [n], the largest error in
each image over the peak of the output's reference.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import AliasChoices, BaseModel, ConfigDict, Field

from edgekit.artifact.fact import EVALUATION, IN_BATCHES, Code, Fact
from edgekit.errors import ArtifactError
from edgekit.storage.files import dump_json

RESULT = "result.json"
# Most bytes of a result; one of a search on a large grid has less than 1 MiB.
LARGEST = 32 << 20
# Name of an artifact's own timing.
CANDIDATE = "candidate"
# Largest quotient of an interval's ends: in a wider one not even the first digit of the ratio is known.
WIDEST = 2.0
# Eleven days.
Milliseconds = Annotated[float, Field(ge=0, le=1e9)]
Times = Annotated[float, Field(gt=0, le=1e6)]
NO_EVALUATION_SET = "no evaluation set"
_KINDS = {
    EVALUATION: "evaluation inputs",
    IN_BATCHES: "of these again in batches",
    "photographs": "photographs",
    "changed": "changed inputs (dark, bright, grey, at their ends)",
    "levelled": "inputs of another mean brightness",
    "words": "queries with words that no evaluation input has",
    "ids": "real inputs with ids that no evaluation input has",
    "categories": "real inputs with each category in turn",
    "shifted": "real inputs moved towards the ends of their ranges",
    "stress": "random and extreme inputs",
    "grid": "random inputs of other sizes",
    "real": "real inputs of other sizes",
    "between": "inputs of sizes between these",
}
_OF_SHAPES = ("grid", "real", "between")
Status = Literal["verified", "rejected", "not verified here"]


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Measure(_Record):
    """One measured value, judged or only shown.

    Attributes:
        batch: "evaluation", "stress" or the sizes of a grid shape.
        output: Name of the output.
        metric: Name of the metric, as in table headings ("max abs", "spearman", "coverage@32 drop").
        value: Measured value; None if it is not finite.
        limit: Its limit; None if it is only shown.
        table: The limit before the reference's noise widened it.
        noise: The reference's own noise in this metric; of the mean of a task metric, what it may be by chance.
        passed: True if it is within its limit.
        row: The worst row, by name.
        index: Position in the row, along the output's axes; -1 if that has no meaning.
        rows: Number of rows, all but a `share` of which must be within the limit; 0 if each must.
        beyond: Number of these rows beyond the limit.
        share: The share that may be beyond it.
    """

    batch: str
    output: str
    metric: str
    value: float | None
    limit: float | None = None
    table: float | None = None
    noise: float | None = None
    passed: bool = True
    # Older results and phones write `image` and `patch`.
    row: str = Field(default="", validation_alias=AliasChoices("row", "image"))
    index: int = Field(default=-1, validation_alias=AliasChoices("index", "patch"))
    rows: int = Field(default=0, ge=0)
    beyond: int = Field(default=0, ge=0)
    share: float = 0.01

    @property
    def within_noise(self) -> bool:
        """True if it failed by less than the reference differs from itself, or by chance in few rows."""
        has_numbers = self.noise is not None and self.value is not None
        return not self.passed and has_numbers and self.value <= self.noise  # type: ignore[operator]  # both are numbers


class Timing(_Record):
    """Latency of one runtime in milliseconds, by the protocol of `latency.py`.

    Attributes:
        warm_ups: Runs before the first timed one; None if the measuring side did not report it.
        load: Load of the host when the timing began: runnable processes, averaged over a minute; None likewise.
    """

    device: str
    runs: int = Field(ge=1)
    p50: Milliseconds
    p90: Milliseconds
    p95: Milliseconds
    p99: Milliseconds
    mean: Milliseconds
    std: Milliseconds
    warm_ups: int | None = None
    load: float | None = None


class Ratio(_Record):
    """Speed relative to a baseline: baseline p50 / candidate p50, with a 95 % bootstrap interval."""

    baseline: str
    value: Times
    low: float = Field(ge=0, le=1e6)
    high: Times

    @property
    def noisy(self) -> bool:
        """True if the interval is too wide to state the ratio."""
        return not self.high <= WIDEST * self.low

    @property
    def slower(self) -> bool:
        """True if the candidate is surely slower: the whole interval is below 1."""
        return self.high < 1.0


class StartUp(_Record):
    """Start-up of a fresh process: milliseconds to open and to the first output, and peak memory in bytes.

    The time to the first output includes the time to open; the import of the runtime's library counts in neither.
    """

    open_ms: float
    first_answer_ms: float
    peak_memory: int | None = None

    def __str__(self) -> str:
        memory = f", {self.peak_memory / 1e6:.0f} MB at its peak" if self.peak_memory is not None else ""
        times = f"opens it in {self.open_ms:.0f} ms and has answered once after {self.first_answer_ms:.0f} ms in all"
        return f"a fresh process {times}{memory}"


class Evidence(_Record):
    """Coverage of an artifact's evaluation in one place.

    Attributes:
        inputs: Compared rows, by kind of batch.
        shapes: Number of tested shapes.
        between: Number of these that are not in the grid.
        combinations: Shapes that the artifact's dynamic axes allow.
        repeated: Rows that ran twice, in another order.
        place: Description of the place: runtime, version, device, threads.
        settings: Settings of the place, by name.
        answered_by: Rows of the reference by device.
        not_asked: Inputs that were left out, in a few words each.
        sampled_from: Number of the model's evaluation inputs if only a sample of them ran; else 0.
        limits: "task" if made inputs fail and the user accepts that; else empty.
    """

    inputs: dict[str, int] = {}
    shapes: int = 0
    between: int = 0
    combinations: int = 0
    repeated: int = 0
    place: str = ""
    settings: dict[str, str] = {}
    answered_by: dict[str, int] = {}
    not_asked: tuple[str, ...] = ()
    sampled_from: int = 0
    limits: Literal["", "task"] = ""

    @property
    def qualifier(self) -> str:
        """Qualifier of the word verified; empty if the whole evaluation set ran and every limit holds."""
        rows = self.inputs.get(EVALUATION, 0)
        if not rows:
            return NO_EVALUATION_SET
        parts = [f"{rows} of {self.sampled_from} evaluation inputs"] if self.sampled_from else []
        return ", ".join([*parts, *([f"on your data alone, limits: {self.limits}"] if self.limits else [])])

    @property
    def lines(self) -> tuple[str, ...]:
        """Sentences: the compared inputs of the usual size, those of other shapes, the place, and what is left out."""
        # Only pictures are levelled; how others are changed follows from what they are.
        kinds = _KINDS if "levelled" in self.inputs else {**_KINDS, "changed": "changed inputs"}
        texts = {kind: f"{count} {kinds.get(kind, kind)}" for kind, count in self.inputs.items() if count}
        usual = [] if self.inputs.get(EVALUATION) else [NO_EVALUATION_SET]
        usual += [text for kind, text in texts.items() if kind not in _OF_SHAPES]
        usual += [f"{self.repeated} of all these a second time, in another order"] if self.repeated else []
        others = [text for kind, text in texts.items() if kind in _OF_SHAPES]
        shapes = f"{self.shapes} of {self.combinations:,}" if self.combinations else f"{self.shapes}"
        between = f"{self.between} between the smallest, default and largest sizes"
        others += [f"{shapes} combinations of sizes that its dynamic axes allow ({between})"] if self.shapes else []
        settings = "".join(f", {name} {value}" for name, value in sorted(self.settings.items()))
        several = len(self.answered_by) > 1
        answers = ", ".join(f"{by} ({count} inputs)" if several else by for by, count in self.answered_by.items())
        groups = {
            "evidence": ", ".join(usual) or "nothing",
            "shapes": ", ".join(others),
            "run in": f"{self.place}{settings}" if self.place else "",
            "compared with": f"the model's outputs on {answers}" if answers else "",
            "not covered": "; ".join(self.not_asked),
        }
        return tuple(f"{name}: {text}" for name, text in groups.items() if text)

    def __str__(self) -> str:
        return "; ".join(self.lines)


class EvaluationResult(_Record):
    """Result of one artifact in one place (cpu, wasm-fp32, interpreter, a phone).

    Attributes:
        place: Its name.
        device: Description of the device.
        status: Verified, rejected, or not verified here.
        variant: Name of the bundle's variant that ran there; empty for a single model.
        reasons: Why it is not verified; empty if it is.
        notes: Notes, whatever the status: ties, limits widened, slower than its source ...
        measures: Every measure, with its limit.
        timings: Timings by name: CANDIDATE, and the interleaved baselines.
        ratios: Speed of the candidate relative to each baseline.
        evidence: Covered inputs; None if the measuring side did not report them.
        start_up: Start-up of a fresh process; None if not measured.
        proof: Sizes of the shapes within all limits.
    """

    place: str = ""
    device: str = ""
    status: Status
    variant: str = ""
    reasons: tuple[Fact, ...] = ()
    notes: tuple[Fact, ...] = ()
    measures: tuple[Measure, ...] = ()
    timings: dict[str, Timing] = {}
    ratios: tuple[Ratio, ...] = ()
    evidence: Evidence | None = None
    start_up: StartUp | None = None
    proof: tuple[dict[str, int], ...] = ()

    @property
    def qualifier(self) -> str:
        """Qualifier of the word verified, for example that there was no evaluation set."""
        return self.evidence.qualifier if self.evidence is not None and self.status == "verified" else ""

    @property
    def slower(self) -> bool:
        """True if it was measured to be slower than its source artifact."""
        return any(note.code is Code.SLOWER for note in self.notes)


class Result(_Record):
    """All results of one host for one artifact.

    Attributes:
        artifact_sha256: Content hash of the judged artifact.
        reference_sha256: Content hash of its reference.
        reference_device: Description of the reference's device.
        judge_sha256: Hash of the judge's code; empty for results from elsewhere.
        size: Bytes on disk: all files of a bundle, else the entry file or folder and its weights.
        first_visit: Bytes that a first visit to a bundle's page transfers, with brotli; None elsewhere.
        host: Facts of the host: processor, instruction sets, threads, operating system.
        places: One result per place.
    """

    # Results of phones and of older builds stay readable.
    schema_version: Literal[1, 2, 3] = 3
    name: str
    target: str
    precision: str
    artifact_sha256: str
    reference_sha256: str
    reference_device: str
    judge_sha256: str = ""
    size: int = Field(ge=0)
    first_visit: int | None = Field(default=None, ge=0)
    host: dict[str, str] = {}
    places: tuple[EvaluationResult, ...] = Field(min_length=1)

    @property
    def status(self) -> Status:
        """Worst status of the places: rejected, then not verified here, then verified."""
        for status in ("rejected", "not verified here"):
            if any(place.status == status for place in self.places):
                return status
        return "verified"


def result_text(result: Result) -> str:
    """Return a result as JSON text."""
    return dump_json(result.model_dump(mode="json"))


def parse_result(data: bytes, path: Path) -> Result:
    """Return a result from its bytes.

    Raises:
        ArtifactError: With the path, if the bytes are not a result.
    """
    try:
        return Result.model_validate_json(data)
    except ValueError as error:
        first = str(error).splitlines()[0]
        raise ArtifactError(f"the result '{path}' is damaged ({first}). Run `edgekit verify` again") from error
