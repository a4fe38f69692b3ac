"""The engine: answers batch by batch, second answers in another order, times of a runtime's own."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import pytest

from edgekit.evaluate import engine
from edgekit.evaluate.engine import InputBatch, Timing, evaluate
from edgekit.model.spec import Array
from edgekit.runtime.protocol import ConcurrentRuntime, Runtime, SelfTimedRuntime, Timings
from edgekit.target import silent


class Doubling:
    """Doubles what it is asked, and refuses what is negative."""

    device = "a host"

    def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        if (inputs["x"] < 0).any():
            raise ValueError("negative")
        return {"y": 2 * inputs["x"]}

    def close(self) -> None:
        pass


class Stateful(Doubling):
    """Answers one more where it was asked the largest value before."""

    last = 0.0

    def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        state, self.last = self.last, float(inputs["x"].max())
        return {"y": 2 * inputs["x"] + (state == 4)}


class Pair(Doubling):
    """Answers side by side."""

    def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        raise AssertionError("it answers side by side")

    def run_many(self, runs: Iterable[Mapping[str, Array]]) -> Iterator[dict[str, Array] | Exception]:
        for inputs in runs:
            try:
                yield Doubling.run(self, inputs)
            except ValueError as error:
                yield error


class Clock(Doubling):
    def benchmark(self, inputs: Mapping[str, Array], seconds: float) -> Timings:
        return Timings((1.0, 3.0), (f"{len(inputs['x'])} image",))


def questions(name: str, *values: float, repeated: int = 32) -> InputBatch:
    def runs() -> Iterator[dict[str, Array]]:
        yield from ({"x": np.array([value], np.float32)} for value in values)

    return InputBatch(name, runs, 1, repeated)


def ask(runtime: Runtime, *asked: InputBatch, timing: Timing | None = None) -> tuple[dict[str, Array], dict[str, Any]]:
    return evaluate(runtime, asked, {"y": 0}, timing, silent)


def test_each_batch_has_its_own_answers_and_its_own_failure() -> None:
    assert isinstance(Pair(), ConcurrentRuntime)
    asked = (questions("evaluation", 0, 1, 2, 3), questions("bad", 1, -1, 1), questions("grid-00", 5, repeated=0))
    for runtime in (Doubling(), Pair()):
        answers, record = ask(runtime, *asked)
        assert {name: array.tolist() for name, array in answers.items()} == {
            "evaluation/y": [0, 2, 4, 6],
            "grid-00/y": [10],
        }
        assert record["failures"] == {"bad": "ValueError: negative"}
        assert record["repeated"] == 0


def test_rows_are_asked_again_from_the_last_to_the_first() -> None:
    for runtime in (Doubling(), Pair()):
        _, record = ask(runtime, questions("evaluation", 0, 1, 2), questions("stress", 1, 2, repeated=1))
        assert (record["repeated"], record["again"], record["failures"]) == (4, {}, {})
    answers, record = ask(Stateful(), questions("evaluation", 0, 1, 4, 3))
    assert record["again"] == {"evaluation again": [3, 1]}  # the first time after a 4, the second time not; and so on
    assert answers["evaluation again/y"].tolist() == [6, 3]


def test_a_runtime_that_times_itself_is_asked() -> None:
    assert isinstance(Clock(), SelfTimedRuntime)
    _, record = ask(Clock(), questions("evaluation", 1), timing=Timing(0.0))
    assert record["milliseconds"] == {"run": [1.0, 3.0]}
    assert record["notes"] == ["1 image"]


def test_answers_of_timed_runs_are_compared_with_the_first_one() -> None:
    answers, record = ask(Stateful(), questions("evaluation", 4), timing=Timing(0.0, lambda: {"other": Doubling()}))
    assert record["again"] == {"evaluation again": [0] * 64}
    assert answers["evaluation again/y"].tolist() == [9] * 64
    assert record["timed_answers"] == 120  # 10 warm-ups, 100 timed runs, and one before each turn of 10
    assert set(record["milliseconds"]) == {"run", "other"}


def test_a_long_timing_says_why_it_takes_long_and_how_far_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "TELL_SECONDS", 0.0)
    said: list[str] = []
    evaluate(Doubling(), (questions("evaluation", 1),), {}, Timing(0.01), lambda done, text: said.append(text))
    told = [text for text in said if text.startswith("measuring latency")]
    assert "100 runs" in told[0]
    assert told[1] == f"{told[0]}; 1 runs in all so far"
    assert len(told) > 100


def test_what_failed_is_not_timed() -> None:
    _, record = ask(Doubling(), questions("evaluation", -1), timing=Timing(0.0))
    assert record["milliseconds"] == {}
