"""Many builds as one table, models by targets: a record for each cell, `matrix.json` and `matrix.html` for all.

`matrix.schema.json`, which programs may rely on, describes `matrix.json` and `edgekit matrix --json`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from edgekit.artifact.run_record import read_run
from edgekit.errors import ArtifactError, EdgekitError, UsageError
from edgekit.report import formats
from edgekit.report.page import environment
from edgekit.report.recommendation import deciding_text, decisive_share
from edgekit.report.rows import read_study
from edgekit.report.study import STATUSES, RowStatus
from edgekit.storage.files import dump_json, write_text, write_together

RECORD, PAGE, CELL, LOG = "matrix.json", "matrix.html", "cell.json", "log.txt"
SAID = "edgekit: "
"""Beginning of a failed command's sentence."""


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class CellRun(_Record):
    """The last attempt at a cell.

    Attributes:
        code: Exit code of `edgekit export`, or minus a signal's number; None if unknown, or at the time limit.
        seconds: Its duration.
        attempts: Number of runs of the cell until its process ended normally.
        host: Its host.
        key: Hash of the cell's ingredients; if it changes, the cell runs again.
    """

    code: int | None = None
    seconds: float = 0.0
    attempts: int = 1
    host: str = ""
    key: str = ""


class CellRecord(_Record):
    """The result of one cell.

    Attributes:
        model: Its name in the matrix.
        target: The target's name.
        column: The target with the options of this cell.
        folder: In the matrix's folder: it holds the build under the model's name, and log.txt.
        status: The worst of the places where the artifact was judged; "failed" without any.
        qualifier: Text that must follow the word verified.
        sentence: The first reason, if not verified.
        places: The verdict in each place.
        size: Bytes on disk; None without an artifact.
        sha256: Hash over the artifact's files: the same for the same bytes.
        speed: Speed relative to its baseline, in words.
        decided: The decisive number, with its limit.
        run: The last attempt.
    """

    model: str
    target: str
    column: str
    folder: str
    status: RowStatus
    qualifier: str = ""
    sentence: str = ""
    places: dict[str, RowStatus] = {}
    size: int | None = None
    sha256: str = ""
    speed: str = ""
    decided: str = ""
    run: CellRun = CellRun()

    @property
    def name(self) -> str:
        """Model and column."""
        return f"{self.model} {self.column}"

    @property
    def status_text(self) -> str:
        """The status with its qualifier."""
        return f"{self.status} ({self.qualifier})" if self.qualifier and self.status == "verified" else self.status

    @property
    def report(self) -> str:
        """The build's own report, in the matrix's folder."""
        return f"{self.folder}/{self.model}/report.html"

    @property
    def log(self) -> str:
        """The output of the export, in the matrix's folder."""
        return f"{self.folder}/{LOG}"


class Matrix(_Record):
    """The results of all cells."""

    schema_version: Literal[1] = 1
    cells: tuple[CellRecord, ...]

    @property
    def models(self) -> list[str]:
        """The rows."""
        return list(dict.fromkeys(cell.model for cell in self.cells))

    @property
    def columns(self) -> list[str]:
        """The targets with their options: the columns."""
        return list(dict.fromkeys(cell.column for cell in self.cells))

    @property
    def summary(self) -> str:
        """The number of cells by status, in a line."""
        counts = Counter(cell.status for cell in self.cells)
        parts = ", ".join(f"{counts[status]} {status}" for status in STATUSES if counts[status])
        return f"{len(self.cells)} {'cell' if len(self.cells) == 1 else 'cells'}: {parts or 'nothing ended'}"


def record_of(model: str, target: str, column: str, root: Path, folder: str, why: str = "") -> CellRecord:
    """Return the record of a cell from its build; `why` if its export did not end normally."""
    build = root / folder / model
    sentence = why or _last_said(root / folder / LOG)
    record = CellRecord(model=model, target=target, column=column, folder=folder, status="failed", sentence=sentence)
    if why:
        return record
    try:
        target_status = read_run(build).targets.get(target)
        artifact = next((each for each in read_study(build).artifacts if each.target == target), None)
    except EdgekitError as error:
        return record if sentence else record.model_copy(update={"sentence": str(error)})
    if target_status is None or artifact is None:
        return record
    # Includes the additional places, since nothing else is imported into a cell's build.
    rows = artifact.rows
    worst = max(rows, key=lambda row: (STATUSES[row.status].rank, decisive_share(row.verdict)))
    reasons = [str(reason) for row in rows if row.status != "verified" for reason in row.reasons]
    decided = deciding_text(worst.verdict)
    by_place = {
        "status": target_status.status,
        "qualifier": next((row.verdict.qualifier for row in rows if row.verdict.qualifier), ""),
        "sentence": "" if target_status.status == "verified" else next(iter(reasons), target_status.error),
        "places": {row.place: row.status for row in rows if row.place},
        "size": worst.size,
        "sha256": artifact.manifest.sha256 if artifact.manifest is not None else "",
        "speed": next((formats.beside_baseline(row.verdict) for row in rows if row.timing), ""),
        "decided": f"{worst.place}: {decided}" if decided and len(rows) > 1 else decided,
    }
    return CellRecord.model_validate(record.model_dump() | by_place)


def _last_said(log: Path) -> str:
    """Return the sentence of a failed command; the last line after a crash."""
    try:
        lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
    except OSError:
        return "it left no log"
    sentences = [line for line in lines if line.startswith(SAID)]
    return sentences[-1].removeprefix(SAID) if sentences else next(reversed(lines), "it printed nothing")


def write_cell(folder: Path, record: CellRecord) -> None:
    """Write a cell's record, atomically: then the cell is finished."""
    folder.mkdir(parents=True, exist_ok=True)
    write_text(folder / CELL, dump_json(record.model_dump(mode="json")))


def read_cell(folder: Path) -> CellRecord | None:
    """Return a cell's record; None if it is not finished, or another version wrote it."""
    try:
        return CellRecord.model_validate_json((folder / CELL).read_bytes())
    except (OSError, ValidationError):
        return None


def write_matrix(root: Path, cells: Sequence[CellRecord]) -> Matrix:
    """Write `matrix.json` and `matrix.html`; a reader always sees both of the same matrix."""
    from jinja2 import ChoiceLoader, FileSystemLoader

    matrix = Matrix(cells=tuple(cells))
    by = {(cell.model, cell.column): cell for cell in cells}
    shared = environment()
    # The page extends a template of the report's.
    loaders = [FileSystemLoader(Path(__file__).parent), *filter(None, [shared.loader])]
    jinja = shared.overlay(loader=ChoiceLoader(loaders))
    page = jinja.get_template(PAGE).render(matrix=matrix, by=by, folder=root.resolve().name)
    write_together({root / RECORD: dump_json(matrix.model_dump(mode="json")), root / PAGE: page})
    return matrix


def read_matrix(root: Path) -> Matrix:
    """Return a matrix written by `edgekit matrix`.

    Raises:
        UsageError: If it does not exist.
        ArtifactError: If it has changed since it was written.
    """
    try:
        return Matrix.model_validate_json((root / RECORD).read_bytes())
    except FileNotFoundError as error:
        raise UsageError(f"no matrix in '{root}'. Make one with `edgekit matrix`") from error
    except ValidationError as error:
        raise ArtifactError(f"'{root / RECORD}' is damaged. Run `edgekit matrix` again") from error
