"""`edgekit matrix`: many models on many targets, each pair as a separate export."""

from __future__ import annotations

import os
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from edgekit.cli.arguments import REJECTED, USER_ERROR, Json, Quiet, print_json
from edgekit.cli.completion import among
from edgekit.cli.help import epilog

if TYPE_CHECKING:
    from edgekit_matrix.crew import Executor
    from edgekit_matrix.report import Matrix


@epilog(
    "Examples:\n\n`edgekit matrix models.toml`\n\n`edgekit matrix models.toml -o build/nightly --jobs 4 --again`"
    "\n\n`edgekit matrix models.toml --ray 10.0.0.1:6379`\n\n"
    "A file: `targets = ['onnx', 'onnx-fp16']` and, below `[models]`, `tiny = 'arr-coc-tiny'`. docs/matrix.md has more."
)
def matrix(
    file: Annotated[Path, typer.Argument(help="TOML file that names models, targets, options and places.")],
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="Folder of the matrix. Default: build/ and the file's name.")
    ] = None,
    jobs: Annotated[int, typer.Option(help="Cells at once on this machine; use 1 for exact speeds.", min=1)] = 1,
    ray: Annotated[
        str,
        typer.Option(
            "--ray",
            help="Ray cluster to run on: HOST:PORT, auto, or local for one of --jobs workers on this machine.",
            autocompletion=among("auto", "local"),
        ),
    ] = "",
    threads: Annotated[
        int, typer.Option(help="Processors for a cell; 0: this machine's divided by --jobs, with --ray 1.", min=0)
    ] = 0,
    seconds: Annotated[float, typer.Option(help="Time limit of one cell.", min=1.0)] = 3600.0,
    again: Annotated[bool, typer.Option("--again", help="Run cells again that did not end verified.")] = False,
    fresh: Annotated[bool, typer.Option("--fresh", help="Run all cells again from scratch.")] = False,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Export many models to many targets, each pair separately. Finished pairs are kept, and a new run resumes."""
    from edgekit.storage.files import require_folder
    from edgekit_matrix.crew import Local
    from edgekit_matrix.file import cells_of, read_file
    from edgekit_matrix.ray_crew import Cluster
    from edgekit_matrix.run import Settings, run

    root = output or Path("build") / file.stem
    require_folder(root, "matrices are made")
    cells = cells_of(read_file(file))
    own = threads
    # By default, cells share the processors; a single cell is not limited.
    if not own and "EDGEKIT_THREADS" not in os.environ and (ray or jobs != 1):
        own = 1 if ray else max(1, (os.cpu_count() or 1) // jobs)

    def crew() -> Executor:
        return Cluster(ray, jobs, max(own, 1)) if ray else Local(jobs)

    tell = (lambda _: None) if as_json or quiet else partial(print, file=sys.stderr, flush=True)
    result = run(cells, root, crew, Settings(seconds, own, again, fresh), tell)
    if as_json:
        print_json(result.model_dump(mode="json"))
    else:
        _show(result, root, quiet)
    statuses = {cell.status for cell in result.cells}
    if statuses & {"rejected", "over budget"}:
        sys.exit(REJECTED)
    if statuses - {"verified", "not verified here"}:
        sys.exit(USER_ERROR)


def _show(result: Matrix, root: Path, quiet: bool) -> None:
    from edgekit.cli.console import print_table
    from edgekit.report import formats
    from edgekit_matrix.report import PAGE

    cells = [cell for cell in result.cells if not quiet or cell.status != "verified"]
    if quiet and not cells:
        return
    rows = [
        (c.model, c.column, c.status_text, formats.size(c.size), c.speed, c.decided or formats.brief(c.sentence, 64))
        for c in cells
    ]
    print_table(("model", "target", "verdict", "size", "times as fast as", "nearest its limit"), rows)
    print(result.summary)
    print(f"report: {root / PAGE}")
