from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest

from edgekit.artifact.result import Ratio, Timing
from edgekit.evaluate import timing
from edgekit.evaluate.timing import Latency
from edgekit.judge import budget
from edgekit.model.spec import Array

INPUTS = {"x": np.zeros((1, 2), np.float32)}


class Host:
    """A clock, and runtimes that move it: no real time passes."""

    def __init__(self, seed: int = 0) -> None:
        self.now = 0.0
        self.runs: list[str] = []
        self.random = np.random.default_rng(seed)

    def clock(self) -> float:
        return self.now

    def runtime(self, name: str, seconds: float, noise: float = 0.0) -> Fake:
        return Fake(self, name, seconds, noise)


class Fake:
    def __init__(self, host: Host, name: str, seconds: float, noise: float) -> None:
        self.host, self.name, self.seconds, self.noise = host, name, seconds, noise

    @property
    def device(self) -> str:
        return f"fake {self.name}, 2 threads"

    def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        self.host.runs.append(self.name)
        self.host.now += self.seconds * float(np.exp(self.noise * self.host.random.standard_normal()))
        return dict(inputs)

    def close(self) -> None:
        raise AssertionError("whoever loaded a runtime closes it")


def times(host: Host, seconds: Mapping[str, float], noise: float = 0.0, least: float = 2.0) -> dict[str, Latency]:
    runtimes = {name: host.runtime(name, each, noise) for name, each in seconds.items()}
    return timing.measure(runtimes, INPUTS, seconds=least, clock=host.clock)


def test_ten_warm_ups_then_at_least_a_hundred_runs() -> None:
    host = Host()
    timed = times(host, {"candidate": 0.008}, least=0.5)
    assert len(host.runs) == 110
    assert len(timed["candidate"].milliseconds) == 100
    assert timed["candidate"].milliseconds[0] == pytest.approx(8.0)
    assert timed["candidate"].device == "fake candidate, 2 threads"


def test_ten_runs_are_enough_of_slow_runtimes_in_short_turns() -> None:
    host = Host()
    timed = times(host, {"candidate": 0.4, "pytorch": 0.2}, least=1.0)
    assert {name: len(each.milliseconds) for name, each in timed.items()} == {"candidate": 10, "pytorch": 15}
    # Few warm up; then turns of two and of three timed runs after one that is not.
    assert host.runs[:12] == ["candidate"] * 2 + ["pytorch"] * 3 + ["candidate"] * 3 + ["pytorch"] * 4


def test_a_fast_runtime_runs_for_two_seconds() -> None:
    timed = times(Host(), {"candidate": 0.004})
    assert 500 <= len(timed["candidate"].milliseconds) <= 501


def test_a_run_of_microseconds_is_not_repeated_without_end() -> None:
    timed = times(Host(), {"candidate": 0.000005, "pytorch": 0.00002})
    assert {len(each.milliseconds) for each in timed.values()} == {timing.MOST_RUNS}


def test_runtimes_take_turns_and_each_starts_half_of_the_rounds() -> None:
    host = Host()
    times(host, {"candidate": 0.02, "onnx": 0.03})
    turn = timing.TURN + 1  # its first run is not timed
    turns = np.array(host.runs[20 : 20 + 20 * turn]).reshape(20, turn)
    assert all(len({*row}) == 1 for row in turns)
    rounds = turns[:, 0].reshape(10, 2)
    assert all({*row} == {"candidate", "onnx"} for row in rounds)
    assert (rounds[:, 0] == "onnx").sum() == 5


def test_the_first_run_of_a_turn_is_not_timed() -> None:
    """A runtime that is slow whenever another one ran just before it, as beside threads that still spin."""
    host = Host()

    class Disturbed(Fake):
        def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
            self.seconds = 0.02 if self.host.runs[-1:] == [self.name] else 0.2
            return super().run(inputs)

    runtimes = {"candidate": Disturbed(host, "candidate", 0.0, 0.0), "onnx": host.runtime("onnx", 0.02)}
    timed = timing.measure(runtimes, INPUTS, clock=host.clock)
    assert max(timed["candidate"].milliseconds) == pytest.approx(20.0)


def test_a_slow_runtime_leaves_when_it_had_plenty() -> None:
    timed = times(Host(), {"candidate": 0.0001, "slow": 1.0})
    assert len(timed["slow"].milliseconds) == 20
    assert len(timed["candidate"].milliseconds) == timing.MOST_RUNS


def test_a_clock_that_stands_still_ends() -> None:
    timed = timing.measure({"candidate": Host().runtime("candidate", 0.0)}, INPUTS, clock=lambda: 0.0)
    assert len(timed["candidate"].milliseconds) == timing.MOST_RUNS
    with pytest.raises(ValueError, match="too coarse"):
        budget.ratio(timed, "candidate")


@pytest.mark.parametrize("runs", [0, timing.MOST_RUNS + 1])
def test_an_impossible_number_of_runs_is_refused(runs: int) -> None:
    with pytest.raises(ValueError, match="runs must be"):
        timing.measure({}, INPUTS, runs=runs)


def test_percentiles_are_those_of_the_runs() -> None:
    one = Latency("cpu", tuple(float(i) for i in range(101)))
    record = Timing.model_validate(one.as_record())
    assert (record.p50, record.p90, record.p95, record.p99, record.mean, record.runs) == (50, 90, 95, 99, 50, 101)
    assert record.std == pytest.approx(np.std(np.arange(101)))


@pytest.mark.parametrize(("factor", "slower"), [(2.0, True), (0.5, False)])
def test_a_clear_difference_is_decided(factor: float, slower: bool) -> None:
    found = budget.ratio(times(Host(1), {"candidate": 0.004 * factor, "onnx": 0.004}, noise=0.2), "onnx")
    assert found.slower is slower
    assert found.value == pytest.approx(1 / factor, rel=0.1)
    assert found.low <= found.value <= found.high
    assert Ratio.model_validate(found.model_dump()).baseline == "onnx"


def test_what_lies_on_both_sides_of_one_is_not_called_slower() -> None:
    found = budget.ratio(times(Host(2), {"candidate": 0.0202, "onnx": 0.02}, noise=0.3), "onnx")
    assert found.low < 1 < found.high
    assert not found.slower


def test_equal_runtimes_are_rarely_called_slower() -> None:
    pairs = [times(Host(seed), {"candidate": 0.02, "onnx": 0.02}, noise=0.2) for seed in range(40)]
    same = [budget.ratio(timed, "onnx") for timed in pairs]
    assert sum(found.slower for found in same) <= 3  # 2.5 % each


def test_a_slow_spell_that_meets_both_changes_nothing() -> None:
    spell = np.repeat([1.0, 5.0, 1.0, 3.0], 50)
    jitter = np.random.default_rng(3).uniform(0.95, 1.05, (2, 200))
    timed = {
        "candidate": Latency("", tuple(4.0 * spell * jitter[0])),
        "onnx": Latency("", tuple(3.0 * spell * jitter[1])),
    }
    found = budget.ratio(timed, "onnx")
    assert found.slower
    assert found.value == pytest.approx(0.75, rel=0.05)


def test_rounds_beyond_the_common_ones_do_not_count() -> None:
    timed = {"candidate": Latency("", (2.0,) * 100), "onnx": Latency("", (1.0,) * 100 + (50.0,) * 900)}
    assert budget.ratio(timed, "onnx").value == 0.5


def test_the_interval_is_the_same_every_time() -> None:
    timed = times(Host(4), {"candidate": 0.0005, "onnx": 0.0004}, noise=0.5)
    assert budget.ratio(timed, "onnx") == budget.ratio(timed, "onnx")
