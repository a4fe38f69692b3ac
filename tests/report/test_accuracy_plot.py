from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from edgekit.report import plots
from edgekit.report.rows import read_study
from tests.report.conftest import FP32, ran


def plotted(builder: Any) -> plots.Accuracy:
    return plots.plot_accuracy(read_study(builder.folder), {"relevance": builder.relevance})


def one(builder: Any, maps: np.ndarray) -> plots.Strip:
    from safetensors.numpy import save

    builder.artifact("onnx", "fp32")
    builder.enter("onnx", {"scores-cpu.safetensors": save({"relevance": maps})})
    builder.judge("onnx", [ran(builder, builder.relevance + np.float32(1e-6), FP32)], 1)
    (strip,) = plotted(builder).strips
    return strip


def test_an_error_is_the_largest_of_an_image_over_all_scores() -> None:
    recorded = {"a": np.zeros((2, 3), np.float32), "b": np.zeros((2, 2), np.float32)}
    scores = {"a": np.array([[0, -3, 1], [0, 0, 0]], np.float32), "b": np.array([[1, 1], [0.5, 0]], np.float32)}
    found = plots.errors(scores, recorded)
    assert found is not None
    assert found.tolist() == [3.0, 0.5]


@pytest.mark.parametrize("scores", [{}, {"other": np.zeros((2, 3))}, {"a": np.zeros((2, 4))}, {"a": np.zeros((3, 3))}])
def test_what_cannot_be_compared_has_no_error(scores: dict[str, np.ndarray]) -> None:
    assert plots.errors(scores, {"a": np.zeros((2, 3))}) is None


def test_a_model_without_scores_has_a_dot_an_image_for_the_largest_error_of_its_outputs(builder: Any) -> None:
    from safetensors.numpy import save

    builder.reference()
    builder.artifact("onnx", "fp32")
    errors = {"relevance": np.geomspace(1e-6, 1e-5, builder.n).astype(np.float32)}
    builder.enter("onnx", {"errors-cpu.safetensors": save(errors | {"unknown": np.ones(builder.n, np.float32)})})
    builder.judge("onnx", [ran(builder, builder.relevance + np.float32(1e-6), FP32)], 1)
    (strip,) = plotted(builder).strips
    assert len(strip.dots) == builder.n
    assert strip.worst is not None
    assert strip.worst.title.endswith(": 1.0e-5")


def test_a_dot_an_image_on_a_logarithmic_axis(builder: Any) -> None:
    builder.reference()
    off = np.geomspace(1e-6, 1e-5, builder.n, dtype=np.float32)
    strip = one(builder, (builder.relevance.astype(np.float64) + off[:, None]).astype(np.float64))
    assert len(strip.dots) == builder.n
    xs = [dot.x for dot in strip.dots]
    assert xs == sorted(xs)
    assert np.ptp(np.diff(xs)) < 0.1  # equal ratios are equal steps
    assert strip.worst is not None
    assert strip.worst.x == max(xs)
    assert strip.worst.title == f"worst: {builder.names[-1]}: 1.0e-5"
    assert strip.box is not None
    assert strip.box[0] < strip.box[1] < strip.box[2]
    assert strip.limit is not None
    assert strip.noise is not None
    assert strip.noise < xs[0] < strip.limit
    ticks = {tick.label: tick.x for tick in plotted(builder).ticks}
    assert strip.limit == ticks["1e-4"]


def test_an_image_that_is_not_finite_is_told_and_not_drawn(builder: Any) -> None:
    builder.reference()
    maps = builder.relevance.copy()
    maps += np.float32(1e-6)
    maps[3, 7] = np.nan
    strip = one(builder, maps)
    assert len(strip.dots) == builder.n - 1
    assert strip.said == f"1 of {builder.n} images are not finite"


def test_equal_maps_are_drawn_at_the_left_end(builder: Any) -> None:
    builder.reference()
    strip = one(builder, builder.relevance)
    assert {dot.x for dot in strip.dots} == {0.0}


def test_many_images_are_thinned_and_the_worst_stays(builder: Any) -> None:
    builder.n = 3 * plots.MOST_DOTS
    builder.reference()
    maps = builder.relevance + np.float32(1e-6)
    maps[77] += np.float32(0.5)
    strip = one(builder, maps)
    assert len(strip.dots) == plots.MOST_DOTS
    assert strip.worst is not None
    assert builder.names[77] in strip.worst.title
    assert max(dot.x for dot in strip.dots) == strip.worst.x


def test_every_row_is_within_the_axis(filled: Any) -> None:
    found = plotted(filled)
    assert len(found.strips) == 9
    for strip in found.strips:
        marks = [dot.x for dot in strip.dots] + [mark for mark in (strip.limit, strip.noise) if mark is not None]
        assert all(0 <= mark <= 100 for mark in marks)
    values = [float(tick.label) for tick in found.ticks]
    assert all(math.log10(value) % 1 == 0 for value in values)
    assert values == sorted(values)
