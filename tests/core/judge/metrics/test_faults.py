"""Two answers that are the same, and what cannot be compared."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given

from edgekit.artifact.fact import Code, fact
from edgekit.judge.metrics import SNR_CAP_DB, compare, failed_comparison
from edgekit.model.spec import Array, Output
from tests.answers import OUTPUTS
from tests.core.judge.metrics.answers import against, answer, maps, scores, value


@given(maps)
@example(np.array([[1, *[4.0285516e-17] * 7]], np.float32))  # the order of a sum
def test_the_same_answer_is_perfect(drawn: Array) -> None:
    made = answer(drawn)
    found = against(made, made)
    assert found.faults == ()
    for zero in ("max abs", "mean abs"):
        assert (value(found, "relevance", zero) == 0).all()
    for zero in ("swap gap", "order gap", "lost mass", "order faults"):
        assert (value(found, "indices", zero) == 0).all()
    assert (value(found, "relevance", "snr") == SNR_CAP_DB).all()
    assert value(found, "relevance", "cosine") == pytest.approx(1)
    assert value(found, "relevance", "spearman") == pytest.approx(1)
    assert (value(found, "budgets", "count excess") == 0).all()
    assert value(found, "budgets", "own count excess") == pytest.approx(0, abs=1e-7)
    assert value(found, "indices", "own gap") == pytest.approx(0)
    for one in ("jaccard", "agreement"):
        assert (value(found, "indices", one) == 1).all()
    assert (value(found, "tokens", "matched") == 1).all()
    assert (value(found, "tokens", "relative") == 0).all()


def test_the_worst_difference_is_named() -> None:
    reference = scores()
    moved = reference.copy()
    moved[1, 7] += 0.5
    image, patch, most = against(answer(reference), answer(moved)).worst or ("", -1, 0.0)
    assert (image, patch) == ("image 1", 7)
    assert most == pytest.approx(0.5)


def test_double_reference_and_strided_candidate() -> None:
    made = answer(scores())
    wide = {name: a.astype(np.float64) if a.dtype == np.float32 else a for name, a in made.items()}
    strided = {name: np.asfortranarray(a) for name, a in made.items()}
    found = against(wide, strided)
    assert not found.faults
    assert value(found, "relevance", "max abs").max() == 0


@pytest.mark.parametrize("output", ["relevance", "tokens", "logits"])
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("side", ["reference", "artifact", "both"])
def test_what_is_not_finite_is_a_fault_on_any_side(output: str, bad: float, side: str) -> None:
    reference, candidate = answer(scores()), answer(scores())
    for one, name in ((reference, "reference"), (candidate, "artifact")):
        if side in (name, "both"):
            one[output] = one[output].copy()
            one[output][1, 2] = bad
    found = against(reference, candidate)
    assert len(found.faults) == (2 if side == "both" else 1)
    sentences = [str(fault) for fault in found.faults]
    assert all(f"'{output}'" in text and "not finite" in text and "'image 1'" in text for text in sentences)
    assert {fault.code for fault in found.faults} == {Code.NOT_FINITE}
    assert found.get(output, "max abs") is None
    if output == "relevance":
        assert found.get("indices", "swap gap") is None
        assert "index 2" in sentences[0]
        assert found.faults[0].index == 2


@pytest.mark.parametrize(
    ("output", "made", "said"),
    [
        ("relevance", None, "is missing"),
        ("relevance", np.zeros((2, 12), np.float64), "is float64, not float32"),
        ("relevance", np.zeros((2, 11), np.float32), "has the shape [2, 11], not [2, 12]"),
        ("relevance", np.zeros((1, 12), np.float32), "has the shape [1, 12]"),
        ("relevance", np.zeros(24, np.float32), "has the shape [24]"),
        ("budgets", np.full((2, 12), 64.0, np.float32), "is float32, not int64"),
        ("budgets", np.full((2, 12), 401), "is not an integer in [64, 400] in 24 of 24 values"),
        ("budgets", np.full((2, 12), 63), "is not an integer in [64, 400]"),
        ("indices", np.array([[0, 1, 2, 12], [0, 1, 2, 3]]), "one outside of 12"),
        ("indices", np.array([[0, 1, 2, 3], [-1, 1, 2, 3]]), "first in row 'image 1'"),
        ("indices", np.array([[0, 1, 1, 3], [0, 1, 2, 3]]), "has a repeated index"),
        ("indices", np.array([[0, 1, 2], [0, 1, 2]]), "has the shape [2, 3]"),
        ("tokens", np.zeros((2, 4, 2), np.float32), "has the shape [2, 4, 2]"),
        ("logits", np.zeros((2, 4), np.float32), "has the shape [2, 4]"),
    ],
)
def test_what_cannot_be_compared_is_a_fault(output: str, made: Array | None, said: str) -> None:
    candidate = answer(scores())
    if made is None:
        del candidate[output]
    else:
        candidate[output] = made
    found = against(answer(scores()), candidate)
    assert len(found.faults) == 1
    assert said in str(found.faults[0])
    assert f"output '{output}' of the artifact" in str(found.faults[0])


@pytest.mark.parametrize(("output", "made"), [("budgets", [[500] * 12] * 2), ("indices", [[0, 0, 1, 2]] * 2)])
def test_an_impossible_reference_is_a_fault_too(output: str, made: list[list[int]]) -> None:
    reference = answer(scores()) | {output: np.array(made)}
    assert any("of the reference" in str(fault) for fault in against(reference, reference).faults)


def test_an_output_of_nothing_is_a_fault() -> None:
    made = answer(scores())
    lost = (Output("relevance", role="scores"), Output("indices", role="ranking", of="relevanse", dtype="int64"))
    assert "derived from 'relevanse'" in str(compare(lost, made, made, ["a", "b"]).faults[0])
    wrong = (Output("relevance"), Output("indices", role="ranking", of="relevance", dtype="int64"))
    assert "not an output with the role 'scores'" in str(compare(wrong, made, made, ["a", "b"]).faults[0])


def test_no_image_is_a_fault_and_so_is_a_run_that_failed() -> None:
    assert compare(OUTPUTS, {}, {}, []).faults
    crash = fact(Code.RUNTIME_FAILED, text="it crashed")
    assert failed_comparison(["a"], crash).faults == (crash,)
