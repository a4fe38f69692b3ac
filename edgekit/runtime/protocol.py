"""The runtime protocol: an opened artifact that runs, and may measure itself."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    from edgekit.model.spec import Array


class Runtime(Protocol):
    """An opened artifact, made by `load` and closed by the caller."""

    @property
    def device(self) -> str:
        """The device, in words: library, version, provider, threads."""

    def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """Run one batch: arrays by input name in, arrays by output name out.

        Raises:
            UsageError: If an input is missing, or a fixed size of the artifact differs.
            ArtifactError: If the runtime fails.
        """

    def close(self) -> None:
        """Free everything. A closed runtime is not used again."""


Answers = Iterator["dict[str, Array] | Exception"]
"""Results of some runs, in their order: an answer, or the error."""


@runtime_checkable
class ConcurrentRuntime(Protocol):
    """A runtime that runs several inputs at the same time, each as `run` would."""

    def run_many(self, runs: Iterable[Mapping[str, Array]]) -> Answers:
        """Yield one answer for each run, in their order; the error for a failed run."""


@dataclass(frozen=True)
class Timings:
    """A runtime's own measurements: every timed run, in order, and notes, one sentence each."""

    milliseconds: tuple[float, ...] = ()
    notes: tuple[str, ...] = ()


@runtime_checkable
class SelfTimedRuntime(Protocol):
    """A runtime that measures itself on its device: timing from here would include the way there."""

    def benchmark(self, inputs: Mapping[str, Array], seconds: float) -> Timings:
        """Time one batch for at least so many seconds; return no runs if its latency means nothing."""


@dataclass(frozen=True)
class FileTensor:
    """An input or output of a file, as the file declares it.

    Attributes:
        name: Its name in the file.
        dtype: NumPy name.
        shape: Sizes; a name or None for an open one. None if the file declares no shape.
        scale: Of a quantized tensor: real value = scale * (stored value - zero_point). 0 if it is not quantized.
        zero_point: Of a quantized tensor.
    """

    name: str
    dtype: str = "float32"
    shape: tuple[int | str | None, ...] | None = None
    scale: float = 0.0
    zero_point: int = 0


class FileRuntime(Runtime, Protocol):
    """An opened file of any origin, which has no manifest: `run` takes and returns arrays by the file's own names."""

    def inputs(self) -> tuple[FileTensor, ...] | None:
        """Return the file's inputs in its order; None if it declares none and takes them by position."""

    def outputs(self) -> tuple[FileTensor, ...] | None:
        """Return the file's outputs, likewise."""


@runtime_checkable
class OrderedRuntime(Protocol):
    """A runtime whose file has its inputs and outputs in an order, on which callers by position rely."""

    def names(self) -> tuple[list[str], list[str]]:
        """Return the names of the inputs and of the outputs, in the file's order."""


@runtime_checkable
class DescribedRuntime(Protocol):
    """A runtime that reports more than its device, such as which nodes run where."""

    def facts(self) -> dict[str, str]:
        """Return facts about itself after a run, by name."""


@runtime_checkable
class MultiModeRuntime(Protocol):
    """A runtime with further modes for the same artifact, such as buffers bound on a GPU."""

    def modes(self, inputs: Mapping[str, Array]) -> Iterator[tuple[str, Callable[[], Runtime]]]:
        """Yield each further mode by name, and a function that opens it for one batch."""

    def mode_answer(self) -> dict[str, Array]:
        """Return the outputs of the last run of the most recent mode, which leaves them on the device."""
