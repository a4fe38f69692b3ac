"""Rows -> HTML, JSON, Markdown, CSV: what a build folder's results say, for people and for machines.

Reads artifacts, results and the reference; runs nothing, judges nothing, imports no torch. The same build gives the
same bytes, wherever and whenever the report is written.
"""

from __future__ import annotations

from pathlib import Path

from edgekit.errors import UsageError
from edgekit.report import page, text
from edgekit.report.rows import read_study
from edgekit.report.study import BuildReport
from edgekit.storage.files import write_text, write_together
from edgekit.storage.host_errors import as_sentences

__all__ = ["write_junit", "write_report"]


@as_sentences()
def write_report(folder: Path) -> BuildReport:
    """Write report.html, .json, .md and .csv of a build into its folder; all four are always of one report.

    Raises:
        UsageError: If there is no artifact in the folder, or it cannot be written to.
    """
    study = read_study(folder)
    writers = {"html": page.render, "json": text.to_json, "md": text.to_markdown, "csv": text.to_csv}
    write_together({folder / f"report.{suffix}": write(study) for suffix, write in writers.items()})
    return study


def write_junit(study: BuildReport, path: Path) -> None:
    """Write a study as JUnit XML, atomically; folders above it are made.

    Raises:
        UsageError: If it cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_text(path, text.to_junit(study))
    except OSError as error:
        raise UsageError(
            f"cannot write '{path}' ({error.strerror}): name a file in a folder that you may write to"
        ) from error
