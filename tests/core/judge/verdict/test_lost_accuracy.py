"""INT8's choice of a class costs what the model's own probabilities say: nothing where two classes are as likely."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from edgekit.judge.deviation import Spreads, spreads
from edgekit.judge.limits import FP16, FP32, INT8, Tolerance
from edgekit.judge.metrics import Comparison, compare
from edgekit.judge.verdict import judge, too_noisy
from edgekit.model.spec import Array, Output

ROWS, CLASSES = 30, 10
NAMES = tuple(f"row {row}" for row in range(ROWS))
LOGITS = np.random.default_rng(4).normal(size=(ROWS, CLASSES)).astype(np.float32) * 2
BEST, NEXT = np.argsort(-LOGITS, axis=1)[:, :2].T
EVERY = np.arange(ROWS)


def led_by(margin: float, scale: float = 1.0) -> Array:
    """The logits, where the best class leads the next by a margin."""
    logits = LOGITS.copy()
    logits[EVERY, BEST] = logits[EVERY, NEXT] + margin
    return logits * np.float32(scale)


def exchanged(logits: Array, rows: int) -> Array:
    """The best and the next class of the first rows change places."""
    wrong = logits.copy()
    some = EVERY[:rows]
    wrong[some, BEST[some]], wrong[some, NEXT[some]] = logits[some, NEXT[some]], logits[some, BEST[some]]
    return wrong


def compared(right: Array, wrong: Array) -> Comparison:
    outputs = (Output("logits", role="logits"), Output("label", role="labels", of="logits", dtype="int64"))
    one, other = ({"logits": side, "label": side.argmax(1)} for side in (right, wrong))
    return compare(outputs, one, other, NAMES)


def lost(found: Comparison, output: str) -> float:
    values = found.get(output, "lost accuracy")
    assert values is not None
    return float(values.mean())


@pytest.mark.parametrize("output", ["logits", "label"])
@pytest.mark.parametrize("scale", [1.0, 0.01])
def test_a_class_as_likely_costs_nothing_and_another_one_its_probability(output: str, scale: float) -> None:
    near, clear = led_by(0.02, scale), led_by(4.0, scale)
    assert lost(compared(near, exchanged(near, 6)), output) < 0.003
    assert lost(compared(clear, exchanged(clear, 6)), output) > 0.05
    assert lost(compared(clear, clear), output) == 0


@pytest.mark.parametrize(("margin", "rows", "status"), [(0.02, 6, "verified"), (4.0, 2, "rejected")])
def test_the_verdict_follows_it(margin: float, rows: int, status: str) -> None:
    right = led_by(margin)
    assert judge(INT8, {}, evaluation=[compared(right, exchanged(right, rows))]).status == status


@pytest.mark.parametrize(("leads", "share"), [(1e-4, 0.0), (0.05, 1 / 50)])
def test_in_fp16_another_class_counts_unless_it_is_as_likely(leads: float, share: float) -> None:
    """Cells of a detector: almost all are empty, and each of their classes has a probability near zero."""
    cells = Output("scores", role="probabilities", axes=("batch", "cells", "channels"))
    right = np.random.default_rng(5).uniform(0, 1e-4, (ROWS, 50, 3)).astype(np.float32)
    right[:, 0] = 0.9, 0.9 + leads, 0.0
    wrong = right[..., [1, 0, 2]]
    flips = compare((cells,), {"scores": right}, {"scores": wrong}, NAMES).get("scores", "flips")
    assert flips is not None
    assert float(flips.max()) == pytest.approx(share)


def test_the_unit_of_a_nearly_empty_batch_is_that_of_real_inputs() -> None:
    """One half-likely box among a hundred empty ones: its classes are not measured by the empty ones."""
    cells = Output("scores", role="probabilities", axes=("batch", "cells", "channels"))
    real = np.zeros((ROWS, 100, 3), np.float32)
    real[:, :20, 0] = 0.9
    right = np.zeros((ROWS, 100, 3), np.float32)
    right[:, 0] = 0.18, 0.12, 0.19
    wrong = right.copy()
    wrong[:, 0] = 0.20, 0.12, 0.19

    def gap(scales: Spreads) -> float:
        values = compare((cells,), {"scores": right}, {"scores": wrong}, NAMES, scales=scales).get(
            "scores", "argmax gap"
        )
        assert values is not None
        return float(values.max())

    assert gap({}) > 10
    assert gap(spreads((cells,), [{"scores": real}], {})) < 0.5


WEATHER = ((4.0, 700.0, 1.6), (290.0, 101000.0, 6.0))


def verdicts(right: Array, wrong: Array, tolerance: Tolerance, noise: float = 0.0) -> list[str]:
    """Return the verdicts on an output that equals the reference, and on another one."""
    output = Output("numbers")
    scales = spreads((output,), [{"numbers": right}], {"numbers": noise}, tolerance.rounding)
    found = [compare((output,), {"numbers": right}, {"numbers": c}, NAMES, scales=scales) for c in (right, wrong)]
    assert too_noisy(tolerance, (output,), {"numbers": noise}, scales) is None
    return [judge(tolerance, {"numbers": noise}, evaluation=[each]).status for each in found]


@pytest.mark.parametrize("tolerance", [FP32, FP16, INT8], ids=lambda tolerance: tolerance.name)
@pytest.mark.parametrize("place", [0, 2])
@pytest.mark.parametrize("shape", [(3,), (2, 3), (1, 3)])
def test_quantities_in_other_units_are_judged_apart(place: int, shape: tuple[int, ...], tolerance: Tolerance) -> None:
    """A temperature, a pressure and a wind in one output, also of two days: one of them stands still."""
    spread, mean = (np.array(row) for row in WEATHER)
    right = (np.random.default_rng(7).normal(size=(ROWS, *shape)) * spread + mean).astype(np.float32)
    wrong = right.copy()
    wrong[..., place] = right[..., place].mean()
    # The noise is that of the pressure.
    assert verdicts(right, wrong, tolerance, noise=0.004) == ["verified", "rejected"]


@pytest.mark.parametrize("tolerance", [FP32, INT8], ids=lambda tolerance: tolerance.name)
def test_a_small_spread_beside_a_large_size_is_not_constant(tolerance: Tolerance) -> None:
    """A frequency of 50 +- 0.027 Hz that stands still."""
    right = (50 + np.random.default_rng(8).normal(0, 0.027, (ROWS, 1))).astype(np.float32)
    assert verdicts(right, np.full_like(right, 50.0), tolerance) == ["verified", "rejected"]


@pytest.mark.parametrize(("real", "metric"), [(True, "error"), (False, "usual error")])
def test_fp16_holds_the_limits_of_real_inputs_wherever_the_answers_are_usual(real: bool, metric: str) -> None:
    """A temperature of 290 K that spreads by 1.4 K, 0.5 K off in every row of a batch but the first."""
    kelvin = Output("kelvin", axes=("batch", "channels"))
    right = (290 + np.random.default_rng(6).normal(0, 1.4, (8, 1))).astype(np.float32)
    wrong = right + np.array([0.0] + [0.5] * 7, np.float32)[:, None]
    scales = spreads((kelvin,), [{"kelvin": right}], {}, FP16.rounding)
    alone = compare((kelvin,), {"kelvin": right}, {"kelvin": right}, NAMES[:8], scales=scales)
    batch = compare((kelvin,), {"kelvin": right}, {"kelvin": wrong}, NAMES[:8], scales=scales)
    found = judge(FP16, {}, evaluation=[alone], grid=[({"batch": 8}, replace(batch, kind="real" if real else None))])
    assert (found.status, metric in {reason.metric for reason in found.reasons}) == ("rejected", True)


@pytest.mark.parametrize("wrong", [0, 1])
def test_a_sure_choice_of_another_class_in_one_changed_picture_rejects_int8(wrong: int) -> None:
    """Two exchanged classes of many are few of the changed inputs, and a small error beside all classes."""
    logits = np.random.default_rng(0).normal(0, 1, (66, 24)).astype(np.float32)
    logits[np.arange(66), np.arange(66) % 24] = 4.0
    answers = logits.copy()
    answers[3, [3, 9]] = answers[3, [9, 3] if wrong else [3, 9]]
    outputs, names = (Output("logits", role="logits"),), [f"picture {n}, exposed" for n in range(66)]
    real, levelled = (compare(outputs, {"logits": logits}, {"logits": y}, names) for y in (logits, answers))
    verdict = judge(INT8, {}, evaluation=[real], more={"levelled": [levelled]})
    assert {reason.metric for reason in verdict.reasons} == ({"argmax gap"} if wrong else set())


@pytest.mark.parametrize(("condition", "metrics"), [("in the upper left", {"channel error"}), ("in the dark", set())])
def test_two_classes_exchanged_in_one_condition_reject_int8_whatever_the_picture_shows(
    condition: str, metrics: set[str]
) -> None:
    """No picture of the condition shows either class, so that no decision changes."""
    logits = np.random.default_rng(0).normal(0, 1, (64, 100)).astype(np.float32)
    logits[np.arange(64), np.arange(64) % 90] = 6.0
    names = [f"Paris, {n}, in the {('upper left', 'upper right')[n % 2]}" for n in range(64)]
    answers = logits.copy()
    wrong = [number for number, name in enumerate(names) if name.endswith(condition)]
    answers[np.ix_(wrong, [90, 91])] = logits[np.ix_(wrong, [91, 90])]
    outputs = (Output("logits", role="logits"),)
    scales = spreads(outputs, [{"logits": logits}], {}, 0.0)
    real, levelled = (
        compare(outputs, {"logits": logits}, {"logits": y}, names, scales=scales) for y in (logits, answers)
    )
    verdict = judge(INT8, {}, evaluation=[real], more={"levelled": [levelled]})
    assert {reason.metric for reason in verdict.reasons} == metrics
    assert all(reason.row.startswith(condition) for reason in verdict.reasons)


@pytest.mark.parametrize(("far", "metrics"), [(1.0, {"channel error"}), (4.0, set())])
def test_where_the_model_answers_far_from_its_real_answers_int8_may_err_more(far: float, metrics: set[str]) -> None:
    """An object in a corner where the user's data have none: its place is beyond what INT8 was calibrated for."""
    draw = np.random.default_rng(0)
    real = draw.normal(0, 1, (64, 2)).astype(np.float32)
    corner = (far * np.sign(real[:16])).astype(np.float32)
    names, outputs = [f"tool {n}, out of focus in the upper left" for n in range(16)], (Output("place"),)
    scales = spreads(outputs, [{"place": real}], {}, 0.0)
    own = compare(outputs, {"place": real}, {"place": real}, [f"tool {n}" for n in range(64)], scales=scales)
    moved = compare(outputs, {"place": corner}, {"place": corner + 0.65}, names, scales=scales)
    verdict = judge(INT8, {}, evaluation=[own], more={"levelled": [moved]})
    assert {reason.metric for reason in verdict.reasons} == metrics


@pytest.mark.parametrize(
    ("gain", "drift", "status"), [(1.0, 0.0, "verified"), (1.03, 0.0, "rejected"), (1, 0.05, "rejected")]
)
def test_an_error_of_a_state_that_adds_up_over_runs_rejects_int8(gain: float, drift: float, status: str) -> None:
    draw = np.random.default_rng(1)
    state = draw.normal(0, 1, (ROWS, 32)).astype(np.float32)
    rounded = (gain * state + drift + draw.normal(0, 0.01, state.shape)).astype(np.float32)
    verdicts = {}
    for role in ("state", "tensor"):
        outputs = (Output("next", role=role),)
        scales = spreads(outputs, [{"next": state}], {}, 0.0)
        compared = compare(outputs, {"next": state}, {"next": rounded}, NAMES, scales=scales)
        verdicts[role] = judge(INT8, {}, evaluation=[compared]).status
    assert verdicts == {"state": status, "tensor": "verified"}
