"""Every row is compared, also where a reference kept sketches; what a slow place is asked, and that it is said."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from edgekit.artifact.fact import Code
from edgekit.artifact.manifest import AxisInfo, Manifest
from edgekit.artifact.result import EvaluationResult, Measure
from edgekit.evaluate.timing import Latency
from edgekit.judge import budget
from edgekit.judge.limits import kind_at_sizes, size_of
from edgekit.model.spec import Array, Axis, Input, ModelSpec, Output
from edgekit.pipeline.judge_step import (
    Units,
    beside_recorded,
    compare_batch,
    inputs_beyond_data,
    sample_fact,
    sample_of,
    with_thresholds,
)
from edgekit.pipeline.worker import PYTORCH
from edgekit.reference.batches import EVALUATION, STRESS, Batch, applicable_batches
from edgekit.reference.info import RecordedHost, ReferenceInfo, Speed
from edgekit.reference.record import retain
from edgekit.reference.store import Reference
from edgekit.report import formats
from edgekit.target import FP32, Place
from tests.answers import OUTPUTS, answer
from tests.manifests import EXPORT, manifest

ROWS = 9
UNITS = Units(0.0, {})


def batch() -> tuple[Batch, dict[str, Array]]:
    scores = np.random.default_rng(0).random((ROWS, 20)).astype(np.float32)
    made = answer(scores, 5, 64)
    names = tuple(f"image {row}" for row in range(ROWS))
    features = [o.name for o in OUTPUTS if o.role == "features"]
    return Batch(EVALUATION, {}, retain(OUTPUTS, made, features), {}, names), made


BOXES = (Output("boxes", role="boxes", axes=("batch", "anchors", "channels")),)


def large_boxes() -> tuple[Batch, dict[str, Array]]:
    """Boxes with confidences of sixteen classes, of which only sketches and some places of a late row are kept."""
    draw = np.random.default_rng(0)
    corner = draw.uniform(0, 500, (ROWS, 6000, 2))
    boxes = np.concatenate([corner, corner + 40, draw.random((ROWS, 6000, 16))], 2).astype(np.float32)
    names = tuple(f"image {row}" for row in range(ROWS))
    return Batch(EVALUATION, {}, retain(BOXES, {"boxes": boxes}), {}, names), {"boxes": boxes}


@pytest.mark.parametrize(("metric", "channels", "by"), [("iou", slice(0, 4), 40.0), ("lost boxes", slice(4, 5), 0.5)])
def test_what_boxes_are_for_is_asked_of_every_row(metric: str, channels: slice, by: float) -> None:
    asked, made = large_boxes()
    assert asked.outputs["boxes"].shape[0] == 4
    assert asked.outputs["boxes.places"].shape == (ROWS, 819, 20)
    wrong = made["boxes"].copy()
    wrong[7, :, channels] = (wrong[7, :, channels] + by) % (1.0 if metric == "lost boxes" else np.inf)
    places = compare_batch(BOXES, asked, {"boxes": wrong}, UNITS, None)[-1].get("boxes", metric)
    assert places is not None
    assert (places[7] < 0.5) if metric == "iou" else (places[7] > 0.5)
    assert set(np.delete(places, 7)) == ({1.0} if metric == "iou" else {0.0})


def test_the_same_answers_differ_in_nothing() -> None:
    asked, made = batch()
    found = compare_batch(OUTPUTS, asked, made, UNITS, None)
    assert [len(comparison.names) for comparison in found] == [ROWS, 4]
    assert not [fault for comparison in found for fault in comparison.faults]
    assert max(found[0].get("tokens", "relative")) == 0  # type: ignore[arg-type]


def test_a_row_counts_once_beside_rows_of_large_outputs_that_were_kept_whole() -> None:
    asked, made = batch()
    found = compare_batch(OUTPUTS, asked, made, UNITS, None)
    assert {measure.output for measure in found[1].measures} == {"tokens"}
    assert sum(len(one.names) for one in found if one.get("relevance", "max abs") is not None) == ROWS


@pytest.mark.parametrize("row", [4, 8])
def test_an_error_and_a_nan_in_a_late_row_are_found(row: int) -> None:
    asked, made = batch()
    wrong = made | {"tokens": made["tokens"].copy()}
    wrong["tokens"][row, 3] *= 1.01
    relative = compare_batch(OUTPUTS, asked, wrong, UNITS, None)[0].get("tokens", "relative")
    assert relative is not None
    assert relative[row] > 1e-4
    assert relative[:4].max() == 0
    wrong["tokens"][row, 3, 7] = np.nan
    faults = compare_batch(OUTPUTS, asked, wrong, UNITS, None)[0].faults
    assert [(fault.code, fault.row) for fault in faults] == [(Code.NOT_FINITE, f"image {row}")]


EDGE = AxisInfo(default=96, minimum=96, maximum=160, multiple_of=16, dynamic=True)
AXES = {"batch": AxisInfo(default=1, minimum=1, maximum=8, multiple_of=1, dynamic=True), "height": EDGE, "width": EDGE}


def numbered(name: str, rows: int, **sizes: int) -> Batch:
    array = np.arange(rows, dtype=np.float32)
    return Batch(name, {"x": array}, {"y": array}, sizes, tuple(f"row {row}" for row in range(rows)))


def recorded() -> Reference:
    grid = (numbered("grid-00", 1, batch=1, height=96, width=96), numbered("grid-01", 3, batch=3, height=96, width=96))
    return Reference(ReferenceInfo(Path()), lambda: (numbered(EVALUATION, 20), numbered(STRESS, 9), *grid))


def test_a_slow_place_is_asked_a_sample() -> None:
    assert [len(b.names) for b in applicable_batches(recorded().batches, web())] == [20, 9, 1, 3]
    sample = applicable_batches(recorded().batches, web(), 8)
    assert [(b.name, len(b.names)) for b in sample] == [(EVALUATION, 8), (STRESS, 9), ("grid-00", 1)]
    assert [len(a) for b in sample[:1] for a in (*b.inputs.values(), *b.outputs.values())] == [8, 8]


def web(**options: str) -> Manifest:
    return manifest(target="web", export=EXPORT.model_copy(update={"options": options}), axes=AXES)


def test_a_place_declares_how_many_images_are_judged_there() -> None:
    slow, quick = (Place(name="wasm", tolerance=FP32, sample=sample) for sample in (8, 0))
    assert sample_of(web(), slow) == 8
    assert sample_of(web(images="all"), slow) is None
    assert sample_of(web(), quick) is None


def test_the_verdict_says_how_much_was_judged() -> None:
    made = web()
    said = sample_fact(made, applicable_batches(recorded().batches, web(), 8), recorded())
    assert said.code is Code.SAMPLED
    assert said.details == {"target": "web", "images": 8, "all_images": 20, "shapes": 1, "all_shapes": 2}
    assert str(said) == (
        "slow here, so judged on 8 of 20 evaluation images and 1 of 2 input shapes. To judge on all, use "
        "`-O web.images=all`"
    )


@pytest.mark.parametrize(("pytorch", "text"), [(72.0, "speed too noisy to say"), (0.4, "8.00×")])
def test_a_speed_beside_an_eager_pytorch_that_stalls_is_too_noisy_to_say(pytorch: float, text: str) -> None:
    own = "bound buffers"
    times = {own: Latency("ONNX Runtime", (0.05,) * 100), PYTORCH: Latency("PyTorch", (pytorch,) * 100)}
    info = ReferenceInfo(Path(), host=RecordedHost(kind="cpu"), speeds=(Speed("batch 1", "eager", 0.33),))
    ratio = beside_recorded(budget.ratio(times, PYTORCH, own), times, own, Reference(info, tuple))
    assert formats.speed(ratio) == text


@pytest.mark.parametrize(
    ("kind", "error", "limit", "count"),
    [("stress", 5.3, 10.0, 1), ("stress", 1.3, 10.0, 0), ("evaluation", 5.3, 0.3, 0), ("stress", 5.3, None, 0)],
)
def test_an_output_that_int8_loses_on_random_inputs_is_not_covered(
    kind: str, error: float, limit: float | None, count: int
) -> None:
    measure = Measure(batch=kind, output="alarm", metric="gross error", value=error, limit=limit, passed=True, row="7")
    said = list(inputs_beyond_data(EvaluationResult(status="verified", measures=(measure, measure))))
    assert len(said) == count
    assert all("'alarm'" in text and "5.3" in text for text in said)


def test_a_cut_signal_is_a_changed_input_and_a_shorter_text_a_real_one() -> None:
    wave, ids = Input("wave", ("batch", "samples")), Input("ids", ("batch", "samples"), dtype="int64", high=9)
    spec = ModelSpec(
        "net", torch.nn.Identity(), (wave,), (Output("y"),), {"batch": Axis(1, 1, 8), "samples": Axis(64, 8, 128)}
    )
    assert kind_at_sizes(spec, {"batch": 4, "samples": 32}) == "changed"
    assert kind_at_sizes(spec, {"batch": 4, "samples": 128}) == "real"
    assert kind_at_sizes(spec, {"batch": 1}) == "real"
    sizes = [size_of(spec, {"batch": 4, "samples": samples}) for samples in (32, 64, 128)]
    assert sizes == ["resized", "usual", "resized"]
    for inputs in ((ids,), (wave, ids), (replace(wave, shape=("batch", 3, "samples", 8), kind="image"),)):
        other = replace(spec, inputs=inputs)
        assert kind_at_sizes(other, {"batch": 4, "samples": 32}) == "real"
        # Texts of other lengths are the user's own, and resized pictures are not.
        assert size_of(other, {"batch": 4, "samples": 32}) == ("resized" if inputs[0].kind == "image" else "")


@pytest.mark.parametrize(("count", "declared", "threshold"), [(120, None, 0.1), (120, 0.3, 0.3), (60, None, None)])
def test_the_least_score_of_many_detections_is_the_threshold_within_a_graph(
    count: int, declared: float | None, threshold: float | None
) -> None:
    found = np.zeros((count, 2, 6), np.float32)
    found[:, 0, 4] = np.linspace(0.1, 0.9, count)
    one = Batch(EVALUATION, {}, {"boxes": found}, {}, tuple(f"scene {row}" for row in range(count)))
    boxes = Output("boxes", role="detections", threshold=declared)
    spec = ModelSpec("net", torch.nn.Identity(), (Input("x", ("batch", 3)),), (boxes,), {"batch": Axis(1, 1, 8)})
    known = with_thresholds(spec, Reference(ReferenceInfo(Path()), lambda: (one,))).outputs[0].threshold
    assert known == (threshold if threshold is None else pytest.approx(threshold))
