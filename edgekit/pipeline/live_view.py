"""The live view of a run: a line a target, with its verdict or what it does; how many ended; what the rest takes."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import util
from types import TracebackType
from typing import TYPE_CHECKING, Self

from edgekit.pipeline.durations import remaining, words
from edgekit.pipeline.listener import Silent
from edgekit.pipeline.outcome import TargetOutcome

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.live import Live as RichLive

COLOURS = {
    "verified": "green",
    "rejected": "bold red",
    "failed": "red",
    "not verified here": "yellow",
    "skipped": "dim",
}
MARKS = {"verified": "✓", "rejected": "✗", "failed": "✗", "not verified here": "?", "skipped": "-"}


@dataclass
class Step:
    """A target, or what is done before the targets.

    Attributes:
        text: What it does now, or why it is not verified.
        share: How far it is, in [0, 1].
        began: When it began, on the view's clock in seconds; None while it waits.
        seconds: How long it took; None until it ended.
        status: The target's, once it ended.
    """

    text: str = "waiting"
    share: float = 0.0
    began: float | None = None
    seconds: float | None = None
    status: str = ""


@dataclass
class Live(Silent):
    """Shows a run on standard error, or below a notebook's cell, and takes the view away at the end.

    Attributes:
        clock: Seconds.
        steps: By name: what runs before the targets, then the targets in their order.
        targets: Names of the targets.
        expected: Seconds that targets took in an earlier run, as far as known.
    """

    clock: Callable[[], float] = time.monotonic
    steps: dict[str, Step] = field(default_factory=dict)
    targets: tuple[str, ...] = ()
    expected: Mapping[str, float] = field(default_factory=dict)
    shown: RichLive | None = None

    def __enter__(self) -> Self:
        from rich.console import Console
        from rich.live import Live as RichLive

        console = Console(stderr=not live_in_notebook())
        self.shown = RichLive(
            get_renderable=lambda: self.view(console), console=console, transient=True, refresh_per_second=4
        )
        self.shown.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self.shown is not None:
            self.shown.stop()

    def started(self, targets: tuple[str, ...], expected: Mapping[str, float]) -> None:
        """Show all targets as waiting."""
        self.targets, self.expected = targets, expected
        self.steps |= {target: Step() for target in targets}

    def progress(self, name: str, done: float, text: str) -> None:
        """Show how far one step is."""
        step = self.steps.setdefault(name, Step())
        step.began = self.clock() if step.began is None else step.began
        step.share, step.text = done, text

    def done(self, name: str) -> None:
        """What is no target is no longer shown once it ended."""
        self.steps.pop(name, None)

    def finished(self, outcome: TargetOutcome) -> None:
        """Show a target's verdict, and why where it is not verified."""
        step = self.steps.setdefault(outcome.target, Step())
        step.status, step.share = outcome.status, 1.0
        step.seconds = self.clock() - step.began if step.began is not None else 0.0
        step.text = "" if outcome.status == "verified" else next(iter(outcome.sentences), "")

    def view(self, console: Console) -> RenderableType:
        """What the terminal shows now: a line a step, none of them wider than the terminal."""
        from rich.console import Group
        from rich.table import Table
        from rich.text import Text

        grid = Table.grid(padding=(0, 1), expand=True)
        grid.add_column(width=1)
        grid.add_column(width=min(max((len(name) for name in self.steps), default=1), console.width // 3))
        grid.add_column(ratio=1, no_wrap=True, overflow="ellipsis")
        grid.add_column(justify="right", no_wrap=True)
        for name, step in self.steps.items():
            grid.add_row(*self._row(name, step))
        return Group(Text(self._head(), style="bold"), grid) if self.targets else grid

    def _row(self, name: str, step: Step) -> tuple[RenderableType, ...]:
        from rich.text import Text

        colour = COLOURS.get(step.status, "")
        if step.seconds is not None:
            told = Text.assemble((step.status, colour), f"  {step.text}" if step.text else "")
            return (
                Text(MARKS.get(step.status, ""), colour),
                Text(name),
                told,
                Text(words(step.seconds) if step.began is not None else ""),
            )
        if step.began is None:
            return "", Text(name, "dim"), Text(step.text, "dim"), ""
        return Text("▸", "cyan"), Text(name), Text(f"{step.share:4.0%}  {step.text}"), words(self.clock() - step.began)

    def _head(self) -> str:
        ended = sum(self.steps[target].seconds is not None for target in self.targets)
        spent = {t: self.clock() - s.began for t, s in self._open().items() if s.began is not None}
        rest = remaining(self.expected, tuple(self._open()), spent)
        about = f", about {words(rest)} left" if rest else ""
        return f"{ended} of {len(self.targets)} targets done{about}"

    def _open(self) -> dict[str, Step]:
        return {target: self.steps[target] for target in self.targets if self.steps[target].seconds is None}


def live_in_notebook() -> bool:
    """Whether this is an IPython kernel whose cells can be redrawn: Rich needs ipywidgets for that."""
    return "ipykernel" in sys.modules and util.find_spec("ipywidgets") is not None
