"""The same inputs again, in another order: no answer may depend on what was asked before, nor on chance."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from edgekit.artifact.result import CANDIDATE
from edgekit.judge.rows import Axes, rows_of
from edgekit.model.spec import Array
from edgekit.reference.batches import EVALUATION, Batch
from edgekit.runtime.protocol import Answers, Runtime, SideBySide

AGAIN = "again"
MOST = 64
"""Different answers that are kept of each batch: what differs so often is judged by as many."""


class Repeats:
    """Second answers; those that are not the first ones, bit for bit, are kept to be judged.

    Args:
        axes: The batch axis of each output.
        first: The first answers, by `<batch>/<output>`, rows first.
        batches: What was asked.
    """

    def __init__(self, axes: Axes, first: Mapping[str, Array], batches: Sequence[Batch]) -> None:
        self._axes, self._first = axes, first
        self._batches = [batch for batch in batches if batch.single]
        self._kept: dict[str, list[tuple[int, dict[str, Array]]]] = {}
        self.failures: dict[str, str] = {}
        self.repeated = 0
        self.timed = 0

    def ask(self, runtime: Runtime, most: int) -> None:
        """Ask the first rows of every batch again, from the last to the first."""
        asked = [
            (batch.name, number, row)
            for batch in reversed(self._batches)
            for number, row in reversed([*zip(range(most), batch.rows(), strict=False)])
        ]
        answers = _answers(runtime, [row for _, _, row in asked])
        for (name, number, _), answer in zip(asked, answers, strict=False):
            try:
                if isinstance(answer, Exception):
                    raise answer
                self._look(name, number, answer)
            except Exception as error:
                said = str(error).strip().splitlines()[:1]
                self.failures[f"{name} {AGAIN}"] = f"{type(error).__name__}: {' '.join(said)}"
                return
            self.repeated += 1

    def timed_answer(self, name: str, answer: Mapping[str, Array]) -> None:
        """An answer of a timed run to the first row: of the evaluation set, or of the first batch."""
        if name == CANDIDATE and self._batches:
            named = next((batch.name for batch in self._batches if batch.name == EVALUATION), self._batches[0].name)
            self._look(named, 0, answer)
            self.timed += 1

    @property
    def rows(self) -> dict[str, tuple[int, ...]]:
        """The rows whose second answer is kept, by "<batch> again"."""
        return {f"{name} {AGAIN}": tuple(row for row, _ in kept) for name, kept in self._kept.items()}

    @property
    def answers(self) -> dict[str, Array]:
        """Their second answers, by `<batch> again/<output>`."""
        return {
            f"{name} {AGAIN}/{output}": np.concatenate([answer[output] for _, answer in kept])
            for name, kept in self._kept.items()
            for output in kept[0][1]
        }

    def _look(self, batch: str, row: int, answer: Mapping[str, Array]) -> None:
        rows = rows_of([(1, answer)], self._axes)
        first = {name: self._first[f"{batch}/{name}"][row : row + 1] for name in rows}
        same = all(np.array_equal(a, first[n], equal_nan=a.dtype.kind == "f") for n, a in rows.items())
        if not same and len(self._kept.get(batch, ())) < MOST:
            self._kept.setdefault(batch, []).append((row, {n: a.copy() for n, a in rows.items()}))


def _answers(runtime: Runtime, runs: Sequence[Mapping[str, Array]]) -> Answers:
    """Side by side where the runtime can, else one after the other, until one fails."""
    if isinstance(runtime, SideBySide):
        yield from runtime.answers(runs)
        return
    for inputs in runs:
        try:
            answer = runtime.run(inputs)
        except Exception as error:
            yield error
            return
        yield answer
