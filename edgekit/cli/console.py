"""What a person sees: progress on standard error, tables on standard output. Piped output has no colours."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

    from edgekit.pipeline.run import Outcome, Row
    from edgekit.report.recipes import Recipe

COLOURS = {
    "verified": "green",
    "rejected": "bold red",
    "failed": "red",
    "not verified here": "yellow",
    "skipped": "dim",
}


class Screen:
    """Progress of a run: a bar a target on a terminal, a line a finished target in a pipe, nothing when quiet."""

    def __init__(self, quiet: bool = False) -> None:
        self._quiet = quiet
        self._live = not quiet and sys.stderr.isatty()
        self._progress: Progress | None = None
        self._tasks: dict[str, TaskID] = {}

    def __enter__(self) -> Self:
        if self._live:
            from rich.console import Console
            from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

            columns = (TextColumn("{task.fields[name]:<20}"), BarColumn(24), TimeElapsedColumn())
            console = Console(stderr=True)
            self._progress = Progress(*columns, TextColumn("{task.description}"), console=console, transient=True)
            self._progress.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._progress is not None:
            self._progress.stop()

    def progress(self, name: str, done: float, text: str) -> None:
        """Show how far one step is, in [0, 1]."""
        if self._progress is None:
            return
        if name not in self._tasks:
            self._tasks[name] = self._progress.add_task("", total=1.0, name=name)
        self._progress.update(self._tasks[name], completed=done, description=text)

    def finished(self, row: Row) -> None:
        """Show one finished target."""
        if self._progress is not None and row.target in self._tasks:
            self._progress.remove_task(self._tasks.pop(row.target))
        if not self._quiet and not self._live:
            print(_line(row), file=sys.stderr)

    def done(self, name: str) -> None:
        """A step that is no target has ended."""
        if self._progress is not None and name in self._tasks:
            self._progress.remove_task(self._tasks.pop(name))


def table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table: with Rich on a terminal, as tab-separated lines in a pipe."""
    if not sys.stdout.isatty():
        for row in rows:
            print("\t".join(row))
        return
    from rich.console import Console
    from rich.table import Table

    drawn = Table(box=None, header_style="bold", padding=(0, 2, 0, 0))
    for head in heads:
        drawn.add_column(head)
    for row in rows:
        drawn.add_row(*(_coloured(cell) for cell in row))
    Console().print(drawn)


def conclude(outcome: Outcome) -> None:
    """Print what became of each target, why, and where the report is."""
    rows = []
    for row in outcome.rows:
        state = f"{row.status} (unchanged)" if row.reused else row.status
        rows.append((row.target, state, str(row.folder), row.sentences[0] if row.sentences else ""))
        rows += [("", "", "", sentence) for sentence in row.sentences[1:]]
    table(("target", "verdict", "artifact", ""), rows)
    print(f"reference: {outcome.reference}")
    print(f"report: {outcome.report}")


def show_recipes(tried: Sequence[Recipe], notes: Sequence[str]) -> None:
    """Print what a search tried and what the exporter says of the recipe it took."""
    heads = ("", "recipe", "p50", "size", "worst sample", "in float")
    if tried:
        table(heads, [(r.mark, r.name, r.p50, r.size, r.measures, r.float_groups) for r in tried])
    for note in notes:
        print(note)


def _line(row: Row) -> str:
    return f"{row.target}: {row.status}" + (f" - {row.sentences[0]}" if row.sentences else "")


def _coloured(cell: str) -> str:
    from rich.markup import escape

    colour = COLOURS.get(cell.removesuffix(" (unchanged)"))
    return f"[{colour}]{escape(cell)}[/]" if colour else escape(cell)
