"""What a runtime is: an opened artifact that answers, and may measure itself."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    from edgekit.model.spec import Array


class Runtime(Protocol):
    """An artifact that answers. Made by `load`, closed by whoever asked for it."""

    @property
    def device(self) -> str:
        """What runs it, in words: library, version, provider, threads."""

    def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """Answer one batch: arrays by input name in, arrays by output name out.

        Raises:
            UsageError: If an input is missing, or a size that the artifact has fixed differs.
            ArtifactError: If the runtime fails.
        """

    def close(self) -> None:
        """Free everything. A closed runtime is not used again."""


Answers = Iterator["dict[str, Array] | Exception"]
"""What came of some runs, in their order: an answer, or why there is none."""


@runtime_checkable
class ConcurrentRuntime(Protocol):
    """A runtime that answers several runs at the same time, each as `run` would."""

    def run_many(self, runs: Iterable[Mapping[str, Array]]) -> Answers:
        """One answer for each run, in their order; for a run that failed its error."""


@dataclass(frozen=True)
class Timings:
    """What a runtime measured of itself: every timed run, in order, and facts to tell, one sentence each."""

    milliseconds: tuple[float, ...] = ()
    notes: tuple[str, ...] = ()


@runtime_checkable
class SelfTimedRuntime(Protocol):
    """A runtime that measures itself where it lives: a clock here would time the way there too."""

    def benchmark(self, inputs: Mapping[str, Array], seconds: float) -> Timings:
        """Time one batch for at least so many seconds; no runs where its latency means nothing."""


@runtime_checkable
class DescribedRuntime(Protocol):
    """A runtime that knows more of itself than its device, such as which nodes run where."""

    def facts(self) -> dict[str, str]:
        """What it says of itself once it has answered, by name."""


@runtime_checkable
class MultiModeRuntime(Protocol):
    """A runtime that can run the same artifact in further ways, such as with its buffers bound on a GPU."""

    def modes(self, inputs: Mapping[str, Array]) -> Iterator[tuple[str, Callable[[], Runtime]]]:
        """Each further way by name, and what opens it for one batch."""

    def mode_answer(self) -> dict[str, Array]:
        """What the last run of the way that was opened last answered: its runs leave it on the device."""
