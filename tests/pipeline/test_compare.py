"""Where a reference kept sketches, every row is compared all the same."""

from __future__ import annotations

import numpy as np
import pytest

from edgekit.artifact.fact import Code
from edgekit.model.spec import Array, Output
from edgekit.pipeline.judge_step import Units, _compared
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
    return Batch(EVALUATION, {}, kept(OUTPUTS, made, features), {}, names), made


BOXES = (Output("boxes", role="boxes", axes=("batch", "anchors", "channels")),)


def large_boxes() -> tuple[Batch, dict[str, Array]]:
    """Boxes with confidences of sixteen classes, of which only sketches and some places of a late row are kept."""
    draw = np.random.default_rng(0)
    corner = draw.uniform(0, 500, (ROWS, 6000, 2))
    boxes = np.concatenate([corner, corner + 40, draw.random((ROWS, 6000, 16))], 2).astype(np.float32)
    names = tuple(f"image {row}" for row in range(ROWS))
    return Batch(EVALUATION, {}, kept(BOXES, {"boxes": boxes}), {}, names), {"boxes": boxes}


@pytest.mark.parametrize(("metric", "channels", "by"), [("iou", slice(0, 4), 40.0), ("lost boxes", slice(4, 5), 0.5)])
def test_what_boxes_are_for_is_asked_of_every_row(metric: str, channels: slice, by: float) -> None:
    asked, made = large_boxes()
    assert asked.outputs["boxes"].shape[0] == 4
    assert asked.outputs["boxes.places"].shape == (ROWS, 819, 20)
    wrong = made["boxes"].copy()
    wrong[7, :, channels] = (wrong[7, :, channels] + by) % (1.0 if metric == "lost boxes" else np.inf)
    places = _compared(BOXES, asked, {"boxes": wrong}, UNITS, None)[-1].get("boxes", metric)
    assert places is not None
    assert (places[7] < 0.5) if metric == "iou" else (places[7] > 0.5)
    assert set(np.delete(places, 7)) == ({1.0} if metric == "iou" else {0.0})


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
    assert [(fault.code, fault.row) for fault in faults] == [(Code.NOT_FINITE, f"image {row}")]
