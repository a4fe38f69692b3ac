"""Every row is compared, also where a reference kept sketches; what a slow place is asked, and that it is said."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from edgekit.artifact.fact import Code
from edgekit.artifact.manifest import AxisInfo, Manifest
from edgekit.pipeline.judge_step import sample_of, sampled
from edgekit.reference.batches import EVALUATION, STRESS, Batch, applicable_batches
from edgekit.reference.info import ReferenceInfo
from edgekit.reference.store import Reference
from edgekit.target import FP32, Place
from tests.manifests import manifest

EDGE = AxisInfo(default=96, minimum=96, maximum=160, multiple_of=16, dynamic=True)
AXES = {"batch": AxisInfo(default=1, minimum=1, maximum=8, multiple_of=1, dynamic=True), "height": EDGE, "width": EDGE}


def numbered(name: str, rows: int, **sizes: int) -> Batch:
    array = np.arange(rows, dtype=np.float32)
    return Batch(name, {"x": array}, {"y": array}, sizes, tuple(f"row {row}" for row in range(rows)))


def recorded() -> Reference:
    grid = (numbered("grid-00", 1, batch=1, height=96, width=96), numbered("grid-01", 3, batch=3, height=96, width=96))
    return Reference((numbered(EVALUATION, 20), numbered(STRESS, 9), *grid), ReferenceInfo(Path()))


def test_a_slow_place_is_asked_a_sample() -> None:
    assert [len(b.names) for b in applicable_batches(recorded().batches, web())] == [20, 9, 1, 3]
    sample = applicable_batches(recorded().batches, web(), 8)
    assert [(b.name, len(b.names)) for b in sample] == [(EVALUATION, 8), (STRESS, 9), ("grid-00", 1)]
    assert [len(a) for b in sample[:1] for a in (*b.inputs.values(), *b.outputs.values())] == [8, 8]


def web(**options: str) -> Manifest:
    return manifest(target="web", options=options, axes=AXES)


def test_a_place_declares_how_many_images_are_judged_there() -> None:
    slow, quick = (Place(name="wasm", tolerance=FP32, sample=sample) for sample in (8, 0))
    assert sample_of(web(), slow) == 8
    assert sample_of(web(images="all"), slow) is None
    assert sample_of(web(), quick) is None


def test_the_verdict_says_how_much_was_judged() -> None:
    made = web()
    said = sampled(made, applicable_batches(recorded().batches, web(), 8), recorded())
    assert said.code is Code.SAMPLED
    assert said.details == {"target": "web", "images": 8, "all_images": 20, "shapes": 1, "all_shapes": 2}
    assert str(said) == (
        "slow here, so judged on 8 of 20 evaluation images and 1 of 2 shapes: `-O web.images=all` judges on all"
    )
