"""Progress of a run: a live view on a terminal or in a notebook, lines elsewhere, or nothing."""

from __future__ import annotations

import sys
import textwrap
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from importlib import util
from types import TracebackType
from typing import TYPE_CHECKING, Literal, Self

from edgekit.errors import UsageError
from edgekit.pipeline.context import Listener, remaining, words
from edgekit.pipeline.outcome import TargetOutcome

if TYPE_CHECKING:
    from rich.progress import Progress, Task
    from rich.text import Text

Style = Literal["auto", "live", "lines", "none"]
# Seconds between two lines of one step.
EVERY = 10.0
# Letters of a reason in a line; the full text follows on standard output.
LONGEST = 80
COLOURS = {
    "verified": "green",
    "rejected": "bold red",
    "failed": "red",
    "not verified here": "yellow",
    "skipped": "dim",
}
MARKS = {"verified": "✓", "rejected": "✗", "failed": "✗", "not verified here": "?", "skipped": "-"}


def listener_for(style: Style) -> Listener:
    """Return the listener of a style; "auto" is live on a terminal and in a capable notebook, lines elsewhere."""
    kinds: dict[str, type[Listener]] = {"live": Live, "lines": Lines, "none": Listener}
    if style == "auto":
        style = "live" if sys.stderr.isatty() or _live_in_notebook() else "lines"
    if style not in kinds:
        raise UsageError(f"unknown progress '{style}'. Use auto, {', '.join(kinds)}")
    return kinds[style]()


class Live(Listener):
    """A line per target with its verdict or current step, on standard error or below a notebook's cell.

    Each line stays until the view is removed at the end of the run.

    Args:
        clock: Seconds.
        width: Columns; None for the terminal's.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic, width: int | None = None):
        # Target -> seconds in an earlier run, or None.
        self.targets: dict[str, float | None] = {}
        self.view = _view(clock, width, self._heading)

    def __enter__(self) -> Self:
        self.view.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.view.stop()

    def started(self, targets: tuple[str, ...], expected: Mapping[str, float]) -> None:
        """Show all targets as waiting."""
        self.targets = {target: expected.get(target) for target in targets}
        for target in targets:
            self._task(target)

    def progress(self, name: str, share: float, text: str) -> None:
        """Show the progress of one step."""
        task = self._task(name)
        if not task.started:
            self.view.start_task(task.id)
        self.view.update(task.id, completed=share, text=text)

    def done(self, name: str) -> None:
        """Remove a finished step that is not a target."""
        self.view.remove_task(self._task(name).id)

    def finished(self, outcome: TargetOutcome) -> None:
        """Show a target's verdict, with the reason if it is not verified."""
        text = "" if outcome.status == "verified" else next(iter(outcome.sentences), "")
        task = self._task(outcome.target)
        self.view.stop_task(task.id)
        self.view.update(task.id, status=outcome.status, text=text)

    def _task(self, name: str) -> Task:
        tasks = {task.description: task for task in self.view.tasks}
        if name not in tasks:
            self.view.add_task(name, start=False, total=1.0, status="", text="waiting")
            return self.view.tasks[-1]
        return tasks[name]

    def _heading(self) -> str:
        if not self.targets:
            return ""
        tasks = [task for task in self.view.tasks if task.description in self.targets and not task.fields["status"]]
        expected = {name: seconds for name, seconds in self.targets.items() if seconds is not None}
        spent = {task.description: task.elapsed or 0.0 for task in tasks}
        rest = remaining(expected, tuple(spent), spent)
        about = f", about {words(rest)} left" if rest else ""
        return f"{len(self.targets) - len(tasks)} of {len(self.targets)} targets done{about}"


def _view(clock: Callable[[], float], width: int | None, heading: Callable[[], str]) -> Progress:
    """Return Rich's view of tasks with fields `status` and `text`, under a heading; lines never wrap."""
    from rich.console import Console, RenderableType
    from rich.progress import Progress, ProgressColumn
    from rich.table import Column
    from rich.text import Text

    class Cell(ProgressColumn):
        def __init__(self, cell: Callable[[Task], Text], column: Column):
            super().__init__(column)
            self.cell = cell

        def render(self, task: Task) -> Text:
            return self.cell(task)

    class View(Progress):
        def get_renderables(self) -> Iterator[RenderableType]:
            if text := heading():
                yield Text(text, style="bold")
            yield self.make_tasks_table(self.tasks)

    def style(task: Task) -> str:
        return COLOURS.get(task.fields["status"], "" if task.started else "dim")

    def state(task: Task) -> Text:
        status, text = task.fields["status"], task.fields["text"]
        if status:
            return Text.assemble((status, style(task)), f"  {text}" if text else "")
        return Text(f"{task.completed:4.0%}  {text}" if task.started else text, style(task))

    def mark(task: Task) -> Text:
        return Text(MARKS.get(task.fields["status"], "▸" if task.started else ""), style(task) or "cyan")

    # Notebooks show standard error on red ground, so the view uses standard output there.
    console = Console(stderr=not _live_in_notebook(), width=width)
    return View(
        Cell(mark, Column(width=1)),
        Cell(lambda task: Text(task.description), Column(max_width=console.width // 3, no_wrap=True)),
        Cell(state, Column(ratio=1, no_wrap=True)),
        Cell(
            lambda task: Text(words(task.elapsed) if task.elapsed is not None else ""),
            Column(justify="right", no_wrap=True),
        ),
        console=console,
        get_time=clock,
        refresh_per_second=4,
        transient=True,
        expand=True,
    )


def _live_in_notebook() -> bool:
    """Return whether this is an IPython kernel whose cells can be redrawn."""
    # Rich needs ipywidgets to redraw a cell.
    return "ipykernel" in sys.modules and util.find_spec("ipywidgets") is not None


@dataclass
class Lines(Listener):
    """Lines on standard error: the begin of a step, its state every ten seconds, and its end.

    Attributes:
        clock: Seconds.
        order: The targets of the run.
        starts: Start of each step.
        latest: Time of the last line of each step.
    """

    clock: Callable[[], float] = time.monotonic
    order: tuple[str, ...] = ()
    starts: dict[str, float] = field(default_factory=dict)
    latest: dict[str, float] = field(default_factory=dict)

    def started(self, targets: tuple[str, ...], expected: Mapping[str, float]) -> None:
        """Store the order, so that each line can number its target."""
        self.order = targets

    def progress(self, name: str, share: float, text: str) -> None:
        """Write a line at the beginning of a step, and then at most one every ten seconds."""
        now = self.clock()
        self.starts.setdefault(name, now)
        if name not in self.latest or now - self.latest[name] >= EVERY:
            self.latest[name] = now
            self._write(name, text)

    def finished(self, outcome: TargetOutcome) -> None:
        """Write a target's status and duration."""
        first = "" if outcome.status == "verified" else next(iter(outcome.sentences), "")
        why = f" - {textwrap.shorten(first, LONGEST, placeholder=' ...')}" if first else ""
        # None if only places ran, which are separate steps.
        start = self.starts.get(outcome.target)
        took = "" if start is None else f" ({words(self.clock() - start)})"
        note = " (unchanged)" if outcome.reused else took
        self._write(outcome.target, f"{outcome.status_text}{note}{why}")

    def _write(self, name: str, text: str) -> None:
        number = f"[{self.order.index(name) + 1}/{len(self.order)}] " if name in self.order else ""
        sys.stderr.write(f"{number}{name}: {text}\n")
        sys.stderr.flush()
