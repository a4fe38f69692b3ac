from __future__ import annotations

import itertools
from typing import Any

import pytest

from edgekit.report import plots
from edgekit.report.rows import read_study
from tests.report.conftest import FP32, ran

CPU, WASM = "cpu · ONNX Runtime 1.31.1", "wasm · Chromium 141"


def panels(builder: Any) -> dict[str, plots.Panel]:
    return {panel.title: panel for panel in plots.plot_latency(read_study(builder.folder))}


def test_what_ran_in_one_place_shares_a_panel_and_its_axis(filled: Any) -> None:
    found = panels(filled)
    assert list(found) == [CPU, WASM, "pixel-8 · nnapi · Pixel 8", "the PyTorch model where the reference was made"]
    assert [lane.label for lane in found[CPU].lanes] == ["onnx", "onnx-fp16", "onnx-int8-dynamic", "onnx-int8-static"]
    assert [lane.variant for lane in found[WASM].lanes] == ["wasm-fp32", "wasm-q8"]
    for panel in found.values():
        bars = [bar for lane in panel.lanes for bar in lane.bars]
        assert max(max(bar.p50, bar.p95) for bar in bars) == pytest.approx(100 / plots.BAR_ROOM, abs=0.01)


def test_lengths_compare_as_times_do(filled: Any) -> None:
    bars = {bar.label: bar for bar in panels(filled)[CPU].lanes[1].bars}
    assert list(bars) == ["onnx-fp16", "onnx", "pytorch"]  # its own first, then the baselines, the fastest first
    assert [bar.own for bar in bars.values()] == [True, False, False]
    assert bars["pytorch"].p50 / bars["onnx-fp16"].p50 == pytest.approx(9.4 / 3.5, rel=1e-3)
    assert bars["onnx-fp16"].p95 / bars["onnx-fp16"].p50 == pytest.approx(1.16, rel=1e-3)
    assert bars["onnx-fp16"].number == "3.50 ms"
    assert "p95 4.06 ms" in bars["onnx-fp16"].title
    assert "400 runs" in bars["onnx-fp16"].title


def test_a_lane_tells_a_rejected_and_a_slower_artifact(filled: Any) -> None:
    lanes = {lane.label: lane for lane in panels(filled)[CPU].lanes}
    assert lanes["onnx-int8-static"].status == "rejected"
    assert {label for label, lane in lanes.items() if lane.slower} == {"onnx-int8-dynamic"}


@pytest.mark.parametrize("p50", [0.0031, 0.3, 3.8, 47.0, 999.0, 12_000.0])
def test_ticks_are_round_and_start_at_zero(p50: float, builder: Any) -> None:
    builder.reference(latency={})
    builder.artifact("onnx", "fp32")
    maps = builder.scores("onnx", "cpu", 1e-6, 1)
    builder.judge("onnx", [ran(builder, maps, FP32, p50, place="phone")], 1)
    (panel,) = panels(builder).values()
    values = [float(tick.label) for tick in panel.ticks]
    assert values[0] == 0
    assert 2 <= len(values) <= plots.MOST_TICKS + 1
    steps = {round(b - a, 9) for a, b in itertools.pairwise(values)}
    assert len(steps) == 1
    assert f"{steps.pop():e}"[0] in "125"
    longest = 1.16 * p50 * plots.BAR_ROOM
    for tick, value in zip(panel.ticks, values, strict=True):
        assert tick.x == pytest.approx(100 * value / longest, abs=0.01)


def test_the_references_own_panel_has_a_lane_for_each_batch(filled: Any) -> None:
    panel = panels(filled)["the PyTorch model where the reference was made"]
    assert panel.device == "NVIDIA H200"
    assert [lane.label for lane in panel.lanes] == ["batch 1", "batch 32"]
    assert {bar.label for bar in panel.lanes[0].bars} == {"eager", "compiled", "cuda graph"}


def test_what_was_not_timed_has_no_panel(builder: Any) -> None:
    builder.reference(latency={})
    builder.artifact("onnx", "fp32")
    maps = builder.scores("onnx", "cpu", 1e-6, 1)
    builder.judge("onnx", [ran(builder, maps, FP32)], 1)
    assert plots.plot_latency(read_study(builder.folder)) == ()


@pytest.mark.parametrize(
    ("p50", "p95", "own", "inside", "edge"),
    [
        (80, 90, False, True, False),
        (40, 90, False, False, True),
        (10, 20, False, False, False),
        (80, 90, True, False, False),
    ],
)
def test_a_long_baseline_has_its_words_inside(p50: float, p95: float, own: bool, inside: bool, edge: bool) -> None:
    bar = plots.Bar("x", p50, p95, "1 ms", "", own)
    assert (bar.inside, bar.edge) == (inside, edge)
