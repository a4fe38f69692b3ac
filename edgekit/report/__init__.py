"""Rows -> HTML, JSON, Markdown, CSV: what a build folder's results say, for people and for machines.

Reads artifacts, results and the reference; runs nothing, judges nothing, imports no torch. The same build gives the
same bytes, wherever and whenever the report is written.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from edgekit.errors import UsageError
from edgekit.report import page
from edgekit.report import text as text_report
from edgekit.report.history import write_history
from edgekit.report.junit import to_junit
from edgekit.report.rows import read_study
from edgekit.report.study import ReportRow, Study
from edgekit.storage.files import write_text, write_together
from edgekit.storage.host_errors import as_sentences

__all__ = ["Report", "ReportRow", "Study", "write_history", "write_junit", "write_report"]


@dataclass(frozen=True, eq=False)
class Report:
    """What was written, and what it says."""

    html: Path
    json: Path
    markdown: Path
    csv: Path
    study: Study


@as_sentences()
def write_report(folder: Path) -> Report:
    """Write report.html, .json, .md and .csv of a build into its folder; all four are always of one report.

    Args:
        folder: A build of one model, for example `build/arr-coc-tiny`.

    Raises:
        UsageError: If there is no artifact in the folder, or it cannot be written to.
    """
    study = read_study(folder)
    html, json, markdown, sheet = (folder / f"report.{suffix}" for suffix in ("html", "json", "md", "csv"))
    report = Report(html, json, markdown, sheet, study)
    texts = {
        report.html: page.render(study),
        report.json: text_report.to_json(study),
        report.markdown: text_report.to_markdown(study),
        report.csv: text_report.to_csv(study),
    }
    write_together(texts)
    return report


def write_junit(study: Study, path: Path) -> None:
    """Write a study as JUnit XML, atomically; folders above it are made.

    Raises:
        UsageError: If it cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_text(path, to_junit(study))
    except OSError as error:
        raise UsageError(
            f"cannot write '{path}' ({error.strerror}): name a file in a folder that you may write to"
        ) from error
