"""Progress of a run for people: a live view on a terminal or in a notebook, a line a target elsewhere, or nothing."""

from __future__ import annotations

import sys
from types import TracebackType
from typing import TYPE_CHECKING, Literal, Self

from edgekit.pipeline.outcome import TargetOutcome

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

Style = Literal["auto", "live", "lines", "none"]


class Silent:
    """Shows nothing."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Nothing to end."""

    def started(self, targets: tuple[str, ...]) -> None:
        """Not shown."""

    def progress(self, name: str, done: float, text: str) -> None:
        """Not shown."""

    def done(self, name: str) -> None:
        """Not shown."""

    def finished(self, outcome: TargetOutcome) -> None:
        """Not shown."""


class Lines(Silent):
    """A line on standard error for each finished target."""

    def finished(self, outcome: TargetOutcome) -> None:
        """Write its line."""
        why = "".join(f" - {sentence}" for sentence in outcome.sentences[:1] if outcome.status != "verified")
        sys.stderr.write(f"{outcome.target}: {outcome.status}{why}\n")
        sys.stderr.flush()


class Live(Silent):
    """A bar for each running step, with what it does, on standard error or below a notebook's cell."""

    def __init__(self) -> None:
        self._progress: Progress | None = None
        self._tasks: dict[str, TaskID] = {}

    def __enter__(self) -> Self:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

        columns = (TextColumn("{task.fields[name]:<20}"), BarColumn(24), TimeElapsedColumn())
        console = Console(stderr=not _in_notebook())
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

    def done(self, name: str) -> None:
        """A step that is no target has ended."""
        if self._progress is not None and name in self._tasks:
            self._progress.remove_task(self._tasks.pop(name))

    def finished(self, outcome: TargetOutcome) -> None:
        """A target has ended."""
        self.done(outcome.target)


def shown(style: Style) -> Silent:
    """The listener of a style; "auto" is live on a terminal and in a notebook, and lines elsewhere."""
    if style == "auto":
        style = "live" if sys.stderr.isatty() or _in_notebook() else "lines"
    return {"live": Live, "lines": Lines, "none": Silent}[style]()


def _in_notebook() -> bool:
    """Whether this is an IPython kernel, whose cells show what is written below them."""
    return "ipykernel" in sys.modules
