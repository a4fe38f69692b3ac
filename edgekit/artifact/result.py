"""What one artifact measured where it ran: `result.json`, beside the manifest.

The manifest says what an artifact is and never varies; a result says what a host found, with times and devices. A phone
or a browser writes the same file, and `edgekit report` reads them all alike. The maps that a report draws lie beside it
in `scores-<place>.safetensors`: for each output with the role "scores" one array [n, N] over the evaluation images.
Of a model without scores there is `errors-<place>.safetensors`: for each output of floats one array [n], the largest
error in each image over the peak of the output's reference.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import AliasChoices, BaseModel, ConfigDict, Field

from edgekit.artifact.fact import EVALUATION, Code, Fact
from edgekit.errors import ArtifactError
from edgekit.storage.files import dump_json

RESULT = "result.json"
LARGEST = 32 << 20  # bytes; that of a search on a large grid is below 1 MiB
CANDIDATE = "candidate"  # name of an artifact's own timing
WIDEST = 2.0
"""Times its lower end, the upper end of a ratio's interval: of a wider one not even the first digit is known."""
Milliseconds = Annotated[float, Field(ge=0, le=1e9)]  # eleven days
Times = Annotated[float, Field(gt=0, le=1e6)]
NO_EVALUATION_SET = "no evaluation set"
_KINDS = {
    EVALUATION: "evaluation inputs",
    "photographs": "photographs",
    "changed": "changed inputs (dark, bright, grey, at their ends)",
    "levelled": "inputs of another mean brightness",
    "stress": "random and extreme inputs",
    "grid": "random inputs at shapes",
    "real": "real inputs at shapes",
    "between": "inputs at shapes between those of the grid",
}
Status = Literal["verified", "rejected", "not verified here"]


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Measure(_Record):
    """One number that was judged or is worth showing.

    Attributes:
        batch: Where it was measured: "evaluation", "stress" or the sizes of a grid shape.
        output: Name of the output.
        metric: Name of the metric, as the table heads show it ("max abs", "spearman", "coverage@32 drop").
        value: What was measured; None where it is not finite.
        limit: What it was held against; None where it is only shown.
        table: The limit before the reference's noise widened it.
        noise: The reference's own noise in this metric.
        passed: Whether it held.
        row: The worst row, by name.
        index: Where in the row, along the output's axes; -1 where that means nothing.
        rows: Of how many rows 99 of 100 must keep the limit; 0 where each must.
        beyond: How many of these do not.
    """

    batch: str
    output: str
    metric: str
    value: float | None
    limit: float | None = None
    table: float | None = None
    noise: float | None = None
    passed: bool = True
    row: str = Field(default="", validation_alias=AliasChoices("row", "image"))
    index: int = Field(default=-1, validation_alias=AliasChoices("index", "patch"))
    rows: int = Field(default=0, ge=0)
    beyond: int = Field(default=0, ge=0)

    @property
    def within_noise(self) -> bool:
        """Whether it failed by less than the reference differs from itself."""
        has_numbers = self.noise is not None and self.value is not None
        return not self.passed and has_numbers and self.value <= self.noise  # type: ignore[operator]  # both are numbers


class Timing(_Record):
    """Latency of one runtime in milliseconds, by the protocol of `latency.py`.

    Attributes:
        warm_ups: Runs before the first timed one; None where whoever measured did not say.
        load: Of the host when the timing began: processes that wanted to run, on average over a minute; likewise.
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
    """How much faster than a baseline: baseline p50 / candidate p50, with a 95 % bootstrap interval."""

    baseline: str
    value: Times
    low: float = Field(ge=0, le=1e6)
    high: Times

    @property
    def noisy(self) -> bool:
        """Whether the interval is too wide for the ratio to be told."""
        return not self.high <= WIDEST * self.low

    @property
    def slower(self) -> bool:
        """Whether the candidate is slower for sure: the whole interval says so."""
        return self.high < 1.0


class StartUp(_Record):
    """What a fresh process needs: milliseconds to open an artifact and to the first answer, and peak memory in bytes.

    The time to the first answer includes the time to open; importing the runtime's library counts in neither.
    """

    open_ms: float
    first_answer_ms: float
    peak_memory: int | None = None

    def __str__(self) -> str:
        memory = f", {self.peak_memory / 1e6:.0f} MB at its peak" if self.peak_memory is not None else ""
        return f"a fresh process opens it in {self.open_ms:.0f} ms, answers after {self.first_answer_ms:.0f} ms{memory}"


class Evidence(_Record):
    """What was asked of an artifact in one place.

    Attributes:
        inputs: Rows that were compared, by kind of batch.
        shapes: Shapes that were asked.
        between: How many of them are not of the grid.
        combinations: Shapes that the artifact's open axes allow.
        repeated: Rows that were asked twice, in another order.
        place: What ran it: runtime, version, device, threads, in words.
        settings: Of the place, by name.
        answered_by: Rows of the reference by who answered.
        not_asked: What was left out, a few words each.
        sampled_from: Evaluation inputs of the model, where only a sample of them was asked; else 0.
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

    @property
    def qualifier(self) -> str:
        """What must stand beside the word verified; empty where a whole evaluation set was asked."""
        rows = self.inputs.get(EVALUATION, 0)
        if not rows:
            return NO_EVALUATION_SET
        return f"{rows} of {self.sampled_from} evaluation inputs" if self.sampled_from else ""

    def __str__(self) -> str:
        parts = [] if self.inputs.get(EVALUATION) else [NO_EVALUATION_SET]
        parts += [f"{count} {_KINDS.get(kind, kind)}" for kind, count in self.inputs.items() if count]
        shapes = f"{self.shapes} of {self.combinations:,}" if self.combinations else f"{self.shapes}"
        parts += [f"{shapes} shapes ({self.between} between those of the grid)"] if self.shapes else []
        parts += [f"{self.repeated} inputs twice"] if self.repeated else []
        settings = "".join(f", {name} {value}" for name, value in sorted(self.settings.items()))
        where = f" in {self.place}{settings}" if self.place else ""
        answers = ", ".join(f"{by} ({count} rows)" for by, count in self.answered_by.items())
        against = f"; against {answers}" if answers else ""
        left_out = f"; not asked: {', '.join(self.not_asked)}" if self.not_asked else ""
        return f"asked: {', '.join(parts) or 'nothing'}{where}{against}{left_out}"


class EvaluationResult(_Record):
    """What was found of one artifact in one place (cpu, wasm-fp32, interpreter, a phone).

    Attributes:
        place: Its name.
        device: What ran it, in words.
        status: Verified, rejected, or not verified here.
        variant: Name of the bundle's variant that ran there; empty for a single model.
        reasons: Why it is not verified; empty where it is.
        notes: What a reader should know whatever the status: ties, limits widened, slower than its source ...
        measures: Every number, with the limit that was used.
        timings: By name: CANDIDATE, and the baselines that ran in turn with it.
        ratios: Candidate against each baseline.
        evidence: What was asked; None where whoever measured did not say.
        start_up: What a fresh process needs; None where that was not measured.
        proof: The sizes of the shapes at which everything held.
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
        """What stands beside the word verified: that there was no evaluation set."""
        return self.evidence.qualifier if self.evidence is not None and self.status == "verified" else ""

    @property
    def slower(self) -> bool:
        """Whether it was measured to be slower than the artifact that it was made from."""
        return any(note.code is Code.SLOWER for note in self.notes)


class Result(_Record):
    """Everything one host found about one artifact.

    Attributes:
        artifact_sha256: Content hash of the artifact that was judged.
        reference_sha256: Content hash of the reference that it was judged by.
        reference_device: What made the reference, in words.
        judge_sha256: Hash of the code that judged; empty for results from elsewhere.
        size: Bytes on disk: of a bundle all of its files, else the entry file or folder and the weights beside it.
        first_visit: Bytes that a first visit to a bundle's page transfers, with brotli; None elsewhere.
        host: Facts of the host: processor, instruction sets, threads, operating system.
        places: One verdict each.
    """

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
        """The worst of the places: rejected before not verified here before verified."""
        for status in ("rejected", "not verified here"):
            if any(place.status == status for place in self.places):
                return status
        return "verified"


def result_text(result: Result) -> str:
    """A result as it is written."""
    return dump_json(result.model_dump(mode="json"))


def parse_result(data: bytes, path: Path) -> Result:
    """A result from its bytes.

    Raises:
        ArtifactError: Naming the path, if they are none.
    """
    try:
        return Result.model_validate_json(data)
    except ValueError as error:
        first = str(error).splitlines()[0]
        raise ArtifactError(f"the result '{path}' is damaged ({first}): run `edgekit verify` again") from error
