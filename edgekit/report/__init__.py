"""Reports of a build folder's results as HTML, JSON, Markdown and CSV.

This room reads artifacts, results and the reference. It runs nothing, judges nothing and does not import torch. The
same build always gives the same bytes.
"""

from __future__ import annotations

from pathlib import Path

from edgekit.artifact.run_record import CACHE, MODEL, PROGRAM
from edgekit.doors import EDGEKIT
from edgekit.errors import UsageError
from edgekit.report import page, text
from edgekit.report.rows import read_study
from edgekit.report.study import BuildReport
from edgekit.storage.environment import package_digest
from edgekit.storage.files import digest_text, write_text, write_together
from edgekit.storage.host_errors import as_sentences

__all__ = ["update_report", "write_junit", "write_report"]

# In a build's cache: the state of its files when the report was written.
WRITTEN = "report.sha256"


@as_sentences()
def write_report(folder: Path) -> BuildReport:
    """Write report.html, .json, .md and .csv of a build into its folder, all four together.

    Raises:
        UsageError: If the folder has no artifact, or is not writable.
    """
    study = read_study(folder)
    writers = {"html": page.render, "json": text.to_json, "md": text.to_markdown, "csv": text.to_csv}
    write_together({folder / f"report.{suffix}": write(study) for suffix, write in writers.items()})
    return study


def update_report(folder: Path) -> None:
    """Write a build's report if one of its files, or edgekit, changed since `update_report` last wrote it.

    Raises:
        UsageError: As `write_report`.
    """
    path = folder / CACHE / WRITTEN
    if path.is_file() and path.read_text() == _state(folder):
        return
    write_report(folder)
    path.parent.mkdir(exist_ok=True)
    write_text(path, _state(folder))


def _state(folder: Path) -> str:
    """Return a digest of edgekit's code and of the sizes and times of the files that a report shows, and its own."""
    skipped = {CACHE, MODEL, PROGRAM}
    paths = (path for path in folder.rglob("*") if path.relative_to(folder).parts[0] not in skipped)
    stats = ((path.relative_to(folder).as_posix(), path.stat()) for path in sorted(paths) if path.is_file())
    files = (f"{name} {stat.st_size} {stat.st_mtime_ns}" for name, stat in stats)
    return digest_text("\n".join((package_digest(EDGEKIT), *files)))


def write_junit(study: BuildReport, path: Path) -> None:
    """Write a report as JUnit XML, atomically; create the folders above it.

    Raises:
        UsageError: If the file is not writable.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_text(path, text.to_junit(study))
    except OSError as error:
        raise UsageError(f"cannot write '{path}' ({error.strerror}). Choose a file in a writable folder") from error
