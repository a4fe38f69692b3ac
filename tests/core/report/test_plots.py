"""Where the marks of the report's plots stand."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save

from edgekit.report import plots
from edgekit.report.rows import read_study
from tests.core.report.conftest import FP32, ran


def plotted(builder: Any) -> plots.Plot:
    return plots.plot_accuracy(read_study(builder.folder), {"relevance": builder.relevance})


def one(builder: Any, kind: str, maps: dict[str, np.ndarray]) -> plots.Lane:
    builder.artifact("onnx", "fp32")
    builder.enter("onnx", {f"{kind}-cpu.safetensors": save(maps)})
    builder.judge("onnx", [ran(builder, builder.relevance + np.float32(1e-6), FP32)], 1)
    (lane,) = plotted(builder).lanes
    return lane


def test_an_error_is_the_largest_of_an_image_over_all_scores() -> None:
    recorded = {"a": np.zeros((2, 3), np.float32), "b": np.zeros((2, 2), np.float32)}
    scores = {"a": np.array([[0, -3, 1], [0, 0, 0]], np.float32), "b": np.array([[1, 1], [0.5, 0]], np.float32)}
    largest = plots.errors(scores, recorded)
    assert largest is not None
    assert largest.tolist() == [3.0, 0.5]
    for other in ({}, {"other": np.zeros((2, 3))}, {"a": np.zeros((2, 4))}, {"a": np.zeros((3, 3))}):
        assert plots.errors(other, recorded) is None, "cannot be compared"


def test_a_model_without_scores_has_a_dot_an_image_for_the_largest_error_of_its_outputs(builder: Any) -> None:
    builder.reference()
    errors = {"relevance": np.geomspace(1e-6, 1e-5, builder.n).astype(np.float32)}
    lane = one(builder, "errors", errors | {"unknown": np.ones(builder.n, np.float32)})
    assert len(lane.dots) == builder.n
    assert lane.marks["worst"].title.endswith(": 1.0e-5")


def test_a_dot_an_image_on_a_logarithmic_axis(builder: Any) -> None:
    builder.reference()
    off = np.geomspace(1e-6, 1e-5, builder.n, dtype=np.float32)
    lane = one(builder, "scores", {"relevance": builder.relevance.astype(np.float64) + off[:, None]})
    assert len(lane.dots) == builder.n
    xs = [dot.x for dot in lane.dots]
    assert xs == sorted(xs)
    assert np.ptp(np.diff(xs)) < 0.1  # equal ratios are equal steps
    worst, quartiles = lane.marks["worst"], lane.marks["quartiles"]
    assert (worst.x, worst.title) == (max(xs), f"worst: {builder.names[-1]}: 1.0e-5")
    assert quartiles.low < quartiles.x < quartiles.high
    assert lane.marks["noise"].x < xs[0] < lane.marks["limit"].x
    ticks = {tick.text: tick.x for tick in plotted(builder).ticks}
    assert lane.marks["limit"].x == ticks["1e-4"]


def test_an_image_that_is_not_finite_is_told_and_not_drawn(builder: Any) -> None:
    builder.reference()
    maps = builder.relevance + np.float32(1e-6)
    maps[3, 7] = np.nan
    lane = one(builder, "scores", {"relevance": maps})
    assert len(lane.dots) == builder.n - 1
    assert lane.remark == f"1 of {builder.n} images are not finite"


def test_equal_maps_are_drawn_at_the_left_end(builder: Any) -> None:
    builder.reference()
    assert {dot.x for dot in one(builder, "scores", {"relevance": builder.relevance}).dots} == {0.0}


def test_many_images_are_thinned_and_the_worst_stays(builder: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plots, "MOST_DOTS", 32)
    builder.n = 3 * plots.MOST_DOTS
    builder.reference()
    maps = builder.relevance + np.float32(1e-6)
    maps[77] += np.float32(0.5)
    lane = one(builder, "scores", {"relevance": maps})
    assert len(lane.dots) == plots.MOST_DOTS
    assert builder.names[77] in lane.marks["worst"].title
    assert max(dot.x for dot in lane.dots) == lane.marks["worst"].x


def test_every_row_is_within_the_axis(filled: Any) -> None:
    plot = plotted(filled)
    assert len(plot.lanes) == 9
    assert all(0 <= mark.x <= 100 for lane in plot.lanes for mark in (*lane.dots, *lane.marks.values()))
    values = [float(tick.text) for tick in plot.ticks]
    assert all(math.log10(value) % 1 == 0 for value in values)
    assert values == sorted(values)


def latency(builder: Any, label: str) -> plots.Plot | None:
    return plots.plot_latency(next(row for row in read_study(builder.folder).rows if row.label == label))


def test_only_what_ran_in_turn_shares_an_axis(filled: Any) -> None:
    """Milliseconds of two artifacts do not compare: each was timed at another moment of a busy host."""
    panel = latency(filled, "onnx-int8-dynamic · cpu")
    assert panel is not None
    (lane,) = panel.lanes
    assert (lane.name, lane.status, lane.remark) == ("onnx-int8-dynamic", "verified", "slower")
    assert [bar.text.partition(" · ")[2] for bar in lane.dots] == ["", "onnx", "pytorch"]
    assert latency(filled, "coreml · interpreter") is None
    reference = plots.plot_reference(read_study(filled.folder).reference)
    assert reference is not None
    assert reference.device == "NVIDIA H200"
    assert [lane.name for lane in reference.lanes] == ["batch 1", "batch 32"]
    assert {bar.text.partition(" · ")[2] for bar in reference.lanes[0].dots} == {"eager", "compiled", "cuda graph"}
    for plot in (panel, reference):
        longest = max(max(bar.x, bar.high) for lane in plot.lanes for bar in lane.dots)
        assert longest == pytest.approx(100 / plots.BAR_ROOM, abs=0.01)


def test_lengths_compare_as_times_do(filled: Any) -> None:
    panel = latency(filled, "onnx-fp16 · cpu")
    assert panel is not None
    own, onnx, pytorch = panel.lanes[0].dots  # its own first, then the baselines, the fastest first
    assert [own.text, onnx.text, pytorch.text] == ["3.50 ms", "3.80 ms · onnx", "9.40 ms · pytorch"]
    assert [own.own, onnx.own, pytorch.own] == [True, False, False]
    assert pytorch.x / own.x == pytest.approx(9.4 / 3.5, rel=1e-3)
    assert own.high / own.x == pytest.approx(1.16, rel=1e-3)
    assert own.title.startswith("onnx-fp16: p50 3.50 ms")
    assert "p95 4.06 ms" in own.title
    assert "400 runs" in own.title


@pytest.mark.parametrize("p50", [0.0031, 0.3, 999.0, 12_000.0])
def test_ticks_are_round_and_start_at_zero(p50: float, builder: Any) -> None:
    builder.reference(latency={})
    builder.artifact("onnx", "fp32")
    maps = builder.scores("onnx", "cpu", 1e-6, 1)
    builder.judge("onnx", [ran(builder, maps, FP32, p50, place="phone")], 1)
    panel = latency(builder, "onnx · phone")
    assert panel is not None
    values = [float(tick.text) for tick in panel.ticks]
    assert values[0] == 0
    assert 2 <= len(values) <= plots.MOST_TICKS + 1
    steps = {round(b - a, 9) for a, b in itertools.pairwise(values)}
    assert len(steps) == 1
    assert f"{steps.pop():e}"[0] in "125"
    longest = 1.16 * p50 * plots.BAR_ROOM
    assert [tick.x for tick in panel.ticks] == pytest.approx([100 * value / longest for value in values], abs=0.01)


def test_what_was_not_timed_has_no_panel(builder: Any) -> None:
    builder.reference(latency={})
    builder.artifact("onnx", "fp32")
    builder.judge("onnx", [ran(builder, builder.scores("onnx", "cpu", 1e-6, 1), FP32)], 1)
    assert latency(builder, "onnx · cpu") is None
    assert plots.plot_reference(read_study(builder.folder).reference) is None


def test_a_long_baseline_has_its_words_inside() -> None:
    bars = ((80, 90, False, "inside"), (40, 90, False, "edge"), (10, 20, False, "after"), (80, 90, True, "after"))
    for p50, p95, own, side in bars:
        assert plots.Mark(p50, high=p95, own=own).side == side
