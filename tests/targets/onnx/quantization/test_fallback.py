from collections.abc import Mapping

from edgekit_targets.onnx.quantization.evaluator import Quality
from edgekit_targets.onnx.quantization.search import Fallback, fallback, fewest_broken

NOISE = {"first": 3.0, "middle": 1.0, "last": 8.0}
"""What each group adds in INT8, in units of the gate's room."""


def judge(
    allowed: float,
    broken: float = 100.0,
    noise: Mapping[str, float] = NOISE,
    work: Mapping[str, int] | None = None,
) -> Fallback:
    def judged(floats: tuple[str, ...]) -> Quality:
        lost = sum(value for name, value in noise.items() if name not in floats)
        reasons = ("it is too much",) if lost > allowed else ()
        return Quality(not reasons, 40.0 - lost, {}, reasons, reasons if lost > broken else ())

    return fallback(tuple(noise), judged, lambda floats: judged(floats).snr_db, work=work)


def test_nothing_goes_back_where_everything_passes() -> None:
    found = judge(allowed=20)
    assert (found.groups, found.tried, found.notes, found.failures) == ((), 1, (), ())


def test_the_most_sensitive_group_goes_back_first() -> None:
    found = judge(allowed=5)
    assert found.groups == ("last",)
    assert found.notes == ()


def test_groups_go_back_in_the_order_of_their_noise_per_multiplication() -> None:
    """The last one has most noise, and ten times the work of the first."""
    assert judge(allowed=9, work={"first": 100, "middle": 100, "last": 1000}).groups == ("first",)


def test_few_candidates_are_judged() -> None:
    found = judge(allowed=37, noise={f"group {number}": 1.0 for number in range(40)})
    assert (len(found.groups), found.tried) == (3, 6)


def test_as_many_go_back_as_the_gate_asks() -> None:
    assert judge(allowed=2).groups == ("first", "last")


def test_the_best_is_told_where_nothing_passes() -> None:
    found = judge(allowed=0.5)
    assert found.groups == ("first", "last")
    assert "this is the best of 3 (it is too much)" in found.notes[-1]
    assert found.failures == ()


def test_what_breaks_the_gate_itself_is_a_failure() -> None:
    found = judge(allowed=0.5, broken=0.5)
    assert found.failures == (
        "no choice holds the gate's limits on samples held back from calibration: it is too much",
    )


def test_a_single_group_is_left_in_int8() -> None:
    assert judge(allowed=0.5, noise={"only": 1.0}).groups == ()


def test_where_no_candidate_holds_the_one_that_breaks_fewest_limits_is_chosen() -> None:
    asked: list[str] = []
    counts = {"a": 14, "b": 3, "c": 3, "d": 0, "e": 0}

    def broken(one: str) -> int:
        asked.append(one)
        return counts[one]

    assert fewest_broken("abc", broken) == "b"
    assert fewest_broken("acde", broken) == "d"
    assert asked == [*"abc", *"acd"]
