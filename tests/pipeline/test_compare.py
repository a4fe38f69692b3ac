"""Where a reference kept sketches, every row is compared all the same."""

from __future__ import annotations

import numpy as np
import pytest

from edgekit.artifact.fact import Code
from edgekit.model.spec import Array
from edgekit.pipeline.compare_step import Units, _compared
from edgekit.reference.answers import kept
from edgekit.reference.batches import EVALUATION, Batch
from tests.answers import OUTPUTS, answer

ROWS = 9
UNITS = Units(0.0, {})


def batch() -> tuple[Batch, dict[str, Array]]:
    scores = np.random.default_rng(0).random((ROWS, 20)).astype(np.float32)
    made = answer(scores, 5, 64)
    names = tuple(f"image {row}" for row in range(ROWS))
    features = [o.name for o in OUTPUTS if o.role == "features"]
    return Batch(EVALUATION, {}, kept(made, features), {}, names), made


def test_the_same_answers_differ_in_nothing() -> None:
    asked, made = batch()
    found = _compared(OUTPUTS, asked, made, UNITS, None)
    assert [len(comparison.names) for comparison in found] == [ROWS, 4]
    assert not [fault for comparison in found for fault in comparison.faults]
    assert max(found[0].get("tokens", "relative")) == 0  # type: ignore[arg-type]


@pytest.mark.parametrize("row", [4, 8])
def test_an_error_and_a_nan_in_a_late_row_are_found(row: int) -> None:
    asked, made = batch()
    wrong = made | {"tokens": made["tokens"].copy()}
    wrong["tokens"][row, 3] *= 1.01
    relative = _compared(OUTPUTS, asked, wrong, UNITS, None)[0].get("tokens", "relative")
    assert relative is not None
    assert relative[row] > 1e-4
    assert relative[:4].max() == 0
    wrong["tokens"][row, 3, 7] = np.nan
    faults = _compared(OUTPUTS, asked, wrong, UNITS, None)[0].faults
    assert [(fault.code, fault.image) for fault in faults] == [(Code.NOT_FINITE, f"image {row}")]
