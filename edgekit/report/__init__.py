"""Reports of a build folder's results as HTML, JSON, Markdown and CSV.

This room reads artifacts, results and the reference. It runs nothing, judges nothing and does not import torch. The
same build always gives the same bytes.
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
    """Write report.html, .json, .md and .csv of a build into its folder, all four together.

    Raises:
        UsageError: If the folder has no artifact, or is not writable.
    """
    study = read_study(folder)
    writers = {"html": page.render, "json": text.to_json, "md": text.to_markdown, "csv": text.to_csv}
    write_together({folder / f"report.{suffix}": write(study) for suffix, write in writers.items()})
    return study


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
