"""Several builds of a model, in the order of their dates: size, speed, error and verdict of each artifact as a line.

`edgekit report --history FOLDER` reads every build below the folder, runs nothing, and writes `history.html` there.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from edgekit.artifact.run_record import RUN
from edgekit.errors import UsageError
from edgekit.report.decision import decisive, share_of_limit, told
from edgekit.report.page import environment
from edgekit.report.recommendation import size_of
from edgekit.report.rows import read_study
from edgekit.report.study import ReportRow, Study
from edgekit.storage.files import write_text
from edgekit.storage.host_errors import as_sentences

PAGE = "history.html"
SCHEMA_VERSION = 1
DEEPEST = 4  # folders below the given one in which a build is looked for
WIDTH, HEIGHT = 160.0, 28.0  # pixels of a line's drawing
TRENDS = {"size": "size", "p50": "p50", "share of the nearest limit": "used"}
"""What is drawn of a line, and the field of its points."""


@dataclass(frozen=True)
class Point:
    """One artifact in one place, in one build.

    `size` is in bytes, `p50` in milliseconds; `used` is the share of the nearest limit, `error` that number with its
    limit. None or empty where it is not known, was not judged, or is not finite.
    """

    status: str
    size: int | None
    p50: float | None
    used: float | None
    error: str


@dataclass(frozen=True)
class Line:
    """One artifact in one place over all builds; None where a build does not have it."""

    model: str
    artifact: str
    points: tuple[Point | None, ...]

    def drawn(self, number: str) -> str:
        """The points of a drawing of one number, from zero; a build without it is left out."""
        values = [(i, v) for i, p in enumerate(self.points) if p is not None and (v := getattr(p, number)) is not None]
        highest = max((v for _, v in values), default=0.0) or 1.0
        step = WIDTH / max(1, len(self.points) - 1)
        return " ".join(f"{i * step:.1f},{HEIGHT - 2 - (HEIGHT - 4) * v / highest:.1f}" for i, v in values)


@dataclass(frozen=True)
class BuildAt:
    """One build: its folder below the given one, its model, when it began, and the command."""

    folder: str
    model: str
    began: str
    command: str


@dataclass(frozen=True)
class History:
    """All builds, the oldest first, and what they hold."""

    builds: tuple[BuildAt, ...]
    lines: tuple[Line, ...]

    def as_record(self) -> dict[str, Any]:
        """For machines: what `edgekit report --history FOLDER --json` prints."""
        record = asdict(self)
        return {"schema_version": SCHEMA_VERSION, "builds": record["builds"], "artifacts": record["lines"]}


def read_history(folder: Path) -> History:
    """Read every build below a folder.

    Raises:
        UsageError: If there are fewer than two of them, or one cannot be read.
    """
    homes = sorted({path.parent for depth in range(DEEPEST) for path in folder.glob("*/" * (depth + 1) + RUN)})
    if len(homes) < 2:
        count = "one build" if homes else "no builds"
        raise UsageError(
            f"'{folder}' holds {count}: a history needs two, each with its {RUN}, for example "
            f"'{folder}/2026-05-01/arr-coc-tiny' and '{folder}/2026-06-01/arr-coc-tiny'"
        )
    # A build without a date comes first: it is older than the record.
    studies = sorted(((read_study(home), home) for home in homes), key=lambda one: (one[0].run.began, str(one[1])))
    builds = tuple(
        BuildAt(home.relative_to(folder).as_posix(), study.name, study.run.began, study.run.command)
        for study, home in studies
    )
    rows = [{(study.name, row.label): _point(study, row) for row in study.rows} for study, _ in studies]
    keys = sorted({key for one in rows for key in one})
    return History(builds, tuple(Line(*key, tuple(one.get(key) for one in rows)) for key in keys))


@as_sentences()
def write_history(folder: Path) -> tuple[History, Path]:
    """Write `history.html` into the folder.

    Raises:
        UsageError: As `read_history`, or if it cannot be written.
    """
    history = read_history(folder)
    shape = {"width": WIDTH, "height": HEIGHT, "trends": TRENDS, "folder": folder.resolve().name}
    write_text(folder / PAGE, environment().get_template(PAGE).render(history=history, **shape))
    return history, folder / PAGE


def _point(study: Study, row: ReportRow) -> Point:
    measure = decisive(row.verdict)
    used = share_of_limit(measure) if measure is not None else math.inf
    return Point(
        status=row.status,
        size=size_of(study, row),
        p50=row.timing.p50 if row.timing else None,
        used=used if math.isfinite(used) else None,
        error=told(row.verdict),
    )
