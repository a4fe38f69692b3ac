"""In INT8, edgekit's photographs and inputs on which the model itself is lost hold the limits of random inputs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from edgekit.judge.limits import FP16, FP32, INT8, Tolerance
from edgekit.model.spec import Array, EvaluationSet
from edgekit.pipeline.unlike import UnlikeRows, split
from edgekit.reference.batches import EVALUATION, Batch
from edgekit.reference.info import RecordedEvaluation, ReferenceInfo
from edgekit.reference.store import Reference

OWN = ("cup 0", "cup 1, red", "photograph wine")
PHOTOGRAPHED = ("photograph picture-0b", "photograph wine")


def right(outputs: Mapping[str, Array], truth: Array) -> Array:
    return np.asarray(outputs["y"].argmax(1) == truth, np.float64)


def batch(name: str, answers: Mapping[str, int], sizes: Mapping[str, int] | None = None) -> Batch:
    values = np.eye(4, dtype=np.float32)[list(answers.values())]
    return Batch(name, {"x": values}, {"y": values}, dict(sizes or {}), tuple(answers))


EVALUATED = batch(EVALUATION, dict.fromkeys(OWN, 1))
REAL = EvaluationSet({"x": np.zeros((3, 4), np.float32)}, OWN, truth=np.ones(3, int), metric=right)


def unlike(tolerance: Tolerance = INT8, real: EvaluationSet | None = REAL, own: bool = True) -> UnlikeRows:
    info = ReferenceInfo(Path(), evaluation=RecordedEvaluation(OWN, values=(1.0, 1.0, 1.0) if real else ()))
    batches = (EVALUATED, batch("photographs", dict.fromkeys(PHOTOGRAPHED, 0))) if own else ()
    return UnlikeRows(Reference(info, lambda: batches), real, tolerance)


LIT = batch(
    "changed",
    {
        "cup 0, reddish": 2,
        "cup 0, bluish": 1,
        "cup 1, red, darkened to 0.05": 3,
        # The truth may be another.
        "cup 1, red, 'x' all 0": 3,
        "cup 0, out of focus in the upper left": 3,
        "drawn": 3,
    },
)


def test_a_changed_input_on_which_the_model_itself_is_wrong_is_unlike() -> None:
    found = unlike()
    assert found.of(LIT) == [0, 2]
    assert found.lost == {LIT.names[0], LIT.names[2]}
    assert unlike(real=None).of(LIT) == []


def test_photographs_of_edgekit_are_unlike_own_inputs_at_any_size() -> None:
    assert unlike().of(batch("photographs", dict.fromkeys(PHOTOGRAPHED, 0))) == [0]
    sized = batch("resized-01", {"0: cup 0": 1, "1: photograph picture-0b": 1, "2: photograph wine": 1}, {"batch": 3})
    # The user's own row has the name of a photograph.
    assert unlike().of(sized) == [1]


@pytest.mark.parametrize(("tolerance", "own"), [(FP32, True), (FP16, True), (INT8, False)])
def test_other_precisions_and_models_without_own_inputs_ask_all(tolerance: Tolerance, own: bool) -> None:
    assert unlike(tolerance, own=own).of(LIT) == []
    assert unlike(tolerance, own=own).of(batch("photographs", {"photograph picture-0b": 0})) == []


def test_both_parts_keep_their_answers() -> None:
    answers = {"y": LIT.outputs["y"] + 1, "one": np.zeros(1)}
    (first, its), (second, theirs) = split(LIT, answers, [0, 2])
    assert (first.names, second.names) == ((LIT.names[1], *LIT.names[3:]), (LIT.names[0], LIT.names[2]))
    assert np.array_equal(its["y"], answers["y"][[1, 3, 4, 5]])
    assert np.array_equal(second.outputs["y"] + 1, theirs["y"])
    assert len(theirs["one"]) == 1
    assert len(split(LIT, answers, range(6))) == 1
