"""Commands that report a build and its changes since another one; they run no artifact."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from edgekit.cli.arguments import DEFAULT_BUILD, REJECTED, BuildFolder, Json, print_answer
from edgekit.cli.build_commands import progress_style
from edgekit.cli.help import epilog


@epilog("Examples:\n\n`edgekit report build/arr-coc-tiny`\n\n`edgekit report build/arr-coc-tiny --junit edgekit.xml`")
def report(
    build: BuildFolder = DEFAULT_BUILD,
    junit: Annotated[
        Path | None, typer.Option("--junit", help="Also write JUnit XML: one test case per artifact and place.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Write report.html, .json, .md and .csv from a build's results, without running anything."""
    from edgekit import report as reports
    from edgekit.api import local

    build = local(build, writable=True, progress=progress_style(as_json))
    study = reports.write_report(build)
    paths = [str(build / f"report.{suffix}") for suffix in ("html", "json", "md", "csv")]
    if junit is not None:
        reports.write_junit(study, junit)
        paths.append(str(junit))
    print_answer(as_json, {"report": paths}, paths)


@epilog(
    "Examples:\n\n`edgekit diff main/arr-coc-tiny build/arr-coc-tiny`\n\n"
    "`edgekit diff main/arr-coc-tiny build/arr-coc-tiny --speed 50 --markdown`\n\n"
    "`edgekit diff s3://bucket/arr-coc-tiny@0123456789abcdef build/arr-coc-tiny`\n\n"
    "`edgekit diff build/monday build/tuesday` of two matrices: verdicts, sizes and bytes, cell by cell."
)
def diff(
    before: Annotated[Path, typer.Argument(help="The build to compare with: a model's build folder, or a matrix.")],
    after: Annotated[Path, typer.Argument(help="The newer build, or matrix.")],
    size: Annotated[float, typer.Option(min=0, help="Percent that an artifact may grow.")] = 1.0,
    speed: Annotated[float, typer.Option(min=0, help="Percent that its ratio to a baseline may fall.")] = 20.0,
    accuracy: Annotated[
        float, typer.Option(min=0, help="Percent of its limit that a measure may move; verdicts may never fall.")
    ] = 10.0,
    markdown: Annotated[bool, typer.Option("--markdown", help="Print a table for a pull request.")] = False,
    as_json: Json = False,
) -> None:
    """Show what became better or worse between two builds, by artifact, image and metric. Exit 3 if any is worse."""
    from edgekit import doors
    from edgekit.api import local
    from edgekit.report.change import AllowedChange
    from edgekit.report.difference import compare_builds

    old_build, here = (local(build, progress=progress_style(as_json)) for build in (before, after))
    allowed = AllowedChange(size / 100, speed / 100, accuracy / 100)
    difference = doors.hook("compare_matrices")(old_build, here, allowed) or compare_builds(old_build, here, allowed)
    print_answer(as_json, difference.as_record(), [difference.as_markdown()] if markdown else difference.lines)
    if difference.worse:
        sys.exit(REJECTED)
