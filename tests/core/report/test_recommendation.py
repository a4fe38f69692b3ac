"""What the report recommends follows from verdicts, sizes and speeds, and from nothing else."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest

from edgekit import registry
from edgekit.artifact.fact import Code, Fact, fact
from edgekit.artifact.manifest import AxisInfo
from edgekit.artifact.result import EvaluationResult, Ratio
from edgekit.artifact.run_record import RunRecord, TargetStatus, write_run
from edgekit.cli.console import show_build
from edgekit.model.spec import Axis
from edgekit.pipeline.outcome import Build
from edgekit.report.plots import LIMIT_SCALE, Plot, plot_tradeoffs
from edgekit.report.recommendation import ANDROID, BROWSER, IOS, SERVER, Recommendation, beside, by_audience, recommend
from edgekit.report.rows import read_study
from edgekit.report.study import BuildReport, ReportedArtifact, ReportRow
from edgekit_apps import android, apple
from tests.core.report.conftest import FP16, FP32, INT8, ORT, ran, timing


def advice(builder: Any) -> dict[str, Recommendation]:
    return {one.audience: one for one in recommend(read_study(builder.folder))}


def made(
    builder: Any, target: str, precision: str, size: int, times: float = 0, width: float = 0.02, batches: bool = False
) -> None:
    """An artifact that is `times` as fast as the one called onnx, give or take `width`; not timed where that is 0."""
    axes = {"batch": AxisInfo.of_axis(Axis(1, 1, 8), batches)}
    builder.artifact(target, precision, axes=axes)
    limits = {"fp32": FP32, "fp16": FP16, "int8": INT8}[precision]
    maps = builder.scores(target, "cpu", 1e-6, 3)
    found = ran(builder, maps, limits)
    if times:
        ratio = Ratio(baseline="onnx", value=times, low=times * (1 - width), high=times * (1 + width))
        ratios = (ratio,) if target != "onnx" else ()
        found = found.model_copy(update={"timings": {"candidate": timing(4.0 / times)}, "ratios": ratios})
    builder.judge(target, [found], size)


@pytest.fixture
def three(builder: Any) -> Any:
    builder.reference()
    made(builder, "onnx", "fp32", 12_000_000, 1)
    made(builder, "onnx-fp16", "fp16", 6_000_000, 0.9)
    made(builder, "onnx-int8-static", "int8", 4_000_000, 1.8)
    return builder


def test_a_server_gets_the_fastest_with_the_reason(three: Any) -> None:
    found = advice(three)[SERVER]
    assert found.sentence == ("Ship onnx-int8-static: 3x smaller, 1.8x as fast as onnx, coverage@32 0.9931 -> 0.9931")
    assert found.others == ("onnx: the original", "onnx-fp16: 2x smaller, 1.1x slower")
    assert found.limit


def test_the_command_line_says_why_it_does_not_recommend_int8(builder: Any, capsys: pytest.CaptureFixture[str]) -> None:
    builder.reference()
    made(builder, "onnx", "fp32", 12_400_000, 1)
    made(builder, "onnx-int8-dynamic", "int8", 4_000_000, 0.77)
    (builder.folder / "report.html").touch()
    show_build(Build((), builder.folder, "an H200"))
    lines = capsys.readouterr().out.splitlines()
    (number,) = [n for n, line in enumerate(lines) if line.startswith("Server: Ship onnx")]
    assert lines[number + 1] == "  not onnx-int8-dynamic: 3.1x smaller, 1.3x slower"


def test_without_a_recommendation_the_command_line_says_what_the_task_metric_says(
    builder: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    builder.reference()
    made(builder, "checked-file", "fp32", 12_400_000)
    (builder.folder / "report.html").touch()
    show_build(Build((), builder.folder, "an H200"))
    lines = capsys.readouterr().out.splitlines()
    assert f"checked-file · cpu: coverage@32 0.9931 -> 0.9931 on {builder.n} of your inputs" in lines


def test_a_server_gets_nothing_that_takes_fewer_sizes_than_the_original(builder: Any) -> None:
    builder.reference()
    made(builder, "onnx", "fp32", 12_000_000, 1, batches=True)
    made(builder, "iree", "fp32", 3_900_000, 3)
    found = advice(builder)[SERVER]
    assert found.head == "Ship onnx"
    assert found.others == ("iree: 3.1x smaller, 3x as fast, batch fixed",)


def test_what_is_rejected_is_not_recommended_and_says_why(three: Any) -> None:
    reason = fact(Code.NOTHING_COMPARED)
    three.judge("onnx-int8-static", [EvaluationResult(place="cpu", status="rejected", reasons=(reason,))], 4_000_000)
    found = advice(three)[SERVER]
    assert found.head == "Ship onnx"
    assert "onnx-int8-static: rejected, nothing was compared" in found.others


def test_what_calibrated_a_rejected_artifact_stands_beside_its_reason(builder: Any) -> None:
    builder.reference()
    made(builder, "onnx", "fp32", 12_000_000, 1)
    builder.artifact("onnx-int8-static", "int8", notes=("calibrated on 30 samples of your calibration inputs",))
    reason = fact(Code.NOTHING_COMPARED)
    builder.judge("onnx-int8-static", [EvaluationResult(place="cpu", status="rejected", reasons=(reason,))], 4_000_000)
    (said,) = advice(builder)[SERVER].others
    assert said.endswith("nothing was compared. It was calibrated on 30 samples of your calibration inputs")


def test_nothing_verified_is_nothing_to_ship(builder: Any) -> None:
    builder.reference()
    builder.artifact("onnx", "fp32")
    builder.judge("onnx", [EvaluationResult(place="cpu", status="rejected", reasons=(fact(Code.NOTHING_COMPARED),))], 1)
    write_run(builder.folder, RunRecord(), {"coreml": TargetStatus(status="not installed", error="needs it")})
    found = advice(builder)
    assert found[SERVER].head == "Nothing to ship"
    assert IOS not in found


def test_what_a_host_could_not_verify_is_not_told_to_be_unfit(builder: Any) -> None:
    builder.reference()
    builder.artifact("onnx", "fp32")
    stopped = fact(Code.TEXT, text="the worker was stopped after 0.3 s")
    builder.judge("onnx", [EvaluationResult(place="cpu", status="not verified here", reasons=(stopped,))], 1)
    assert advice(builder)[SERVER].head == "Nothing verified on this host"


def test_where_the_download_counts_the_smallest_that_is_not_slower(builder: Any) -> None:
    builder.reference()
    made(builder, "executorch", "fp32", 12_000_000)
    made(builder, "executorch-int8", "int8", 4_000_000)
    assert advice(builder)[ANDROID].head == "Ship executorch-int8"
    slow = Ratio(baseline="executorch", value=0.5, low=0.48, high=0.52)
    place = EvaluationResult(
        place="cpu", status="verified", device=ORT, ratios=(slow,), timings={"candidate": timing(9.0)}
    )
    builder.judge("executorch-int8", [place], 4_000_000)
    one = EvaluationResult(place="cpu", status="verified", device=ORT, timings={"candidate": timing(4.5)})
    builder.judge("executorch", [one], 12_000_000)
    assert advice(builder)[ANDROID].head == "Ship executorch"


def test_an_artifact_that_two_places_verified_is_named_once(builder: Any) -> None:
    builder.reference()
    places = [EvaluationResult(place=name, status="verified", device=ORT) for name in ("litert-cpu", "litert-js")]
    for target, precision, size in (("litert", "fp32", 12_000_000), ("litert-int8", "int8", 4_000_000)):
        builder.artifact(target, precision)
        builder.judge(target, places, size)
    found = advice(builder)[ANDROID]
    assert found.head == "Ship litert-int8"
    assert found.others == ("litert: the original",)


def test_of_a_bundle_a_variant_is_recommended_with_its_own_size(filled: Any) -> None:
    found = advice(filled)
    assert found[BROWSER].head.startswith("Ship web wasm-")
    assert found[IOS].head == "Try coreml"
    assert "not yet run on a device of the platform" in found[IOS].sentence
    assert "onnx-int8-static" not in found[SERVER].head  # it is rejected


def audiences_of(targets: Iterable[str]) -> dict[str, str]:
    grouped = by_audience(ReportRow(target, "fp32", "cpu", "not verified here") for target in targets)
    return {row.target: audience for audience, rows in grouped.items() for row in rows}


def test_audiences() -> None:
    audiences = {"onnx": SERVER, "torchscript": SERVER, "web": BROWSER, "executorch-int8": ANDROID, "coreml": IOS}
    audiences |= {"not-installed-here": SERVER}
    assert audiences_of([*audiences, "mnn", "mnn-int8"]) == audiences


def test_what_is_for_phones_goes_into_an_app() -> None:
    """A report must not recommend for an app what `edgekit assets` refuses."""
    newest = apple.platform(apple.CORE_AI_BEGINS)
    for target, audience in audiences_of(registry.available()).items():
        assert audience != ANDROID or target in android.PLATFORM.targets
        assert audience != IOS or target in newest.targets


def test_what_has_a_successor_is_recommended_to_nobody(builder: Any) -> None:
    builder.reference()
    made(builder, "torch-mobile", "fp32", 12_000_000)
    alone = advice(builder)[ANDROID]
    # It is no fault of what was exported: an option exports the successor.
    assert "Nothing" not in alone.sentence
    assert "torch-mobile" in alone.sentence
    assert "`-t executorch`" in alone.sentence
    assert alone.others == ("torch-mobile: no longer developed. Use executorch instead",)
    made(builder, "executorch", "fp32", 13_000_000)
    assert advice(builder)[ANDROID].head == "Ship executorch"
    reason = fact(Code.NOTHING_COMPARED)
    builder.judge("executorch", [EvaluationResult(place="cpu", status="rejected", reasons=(reason,))], 1)
    assert advice(builder)[ANDROID].sentence == "Nothing to ship"


@pytest.mark.parametrize(
    ("size", "head"), [(3_990_000, "Ship onnx-int8-static"), (3_000_000, "Ship onnx-int8-dynamic")]
)
def test_of_speeds_that_cannot_be_told_apart_the_smaller_artifact_wins_and_of_nearly_equal_sizes_the_faster(
    builder: Any, size: int, head: str
) -> None:
    builder.reference()
    made(builder, "onnx", "fp32", 12_000_000, 1)
    made(builder, "onnx-int8-static", "int8", 4_000_000, 1.8, width=0.2)
    made(builder, "onnx-int8-dynamic", "int8", size, 1.6, width=0.2)
    assert advice(builder)[SERVER].head == head


def test_speeds_are_told_by_the_best_evidence(filled: Any) -> None:
    rows = {row.label: row for row in read_study(filled.folder).rows}
    base, page = rows["onnx · cpu"], rows["web · wasm-fp32"]
    own, direct, apart = beside(base, base), beside(rows["onnx-fp16 · cpu"], base), beside(rows["web · wasm-q8"], page)
    assert own is not None
    assert own.value == 1
    assert direct is not None
    assert direct.value == pytest.approx(3.8 / 3.5)
    assert "95 % interval" in direct.how
    assert apart is not None
    assert "not run interleaved" in apart.how
    assert beside(rows["coreml · interpreter"], base) is None
    assert beside(page, base) is None, "two runtimes that never ran in turn"
    assert beside(rows["onnx · nnapi · pixel-8"], base) is None, "two hosts"


def server(study: BuildReport) -> Plot:
    return next(plot for plot in plot_tradeoffs(study, recommend(study)) if plot.title == SERVER)


def test_a_panel_of_the_plot_holds_what_is_shipped_to_one_audience_and_can_be_compared(filled: Any) -> None:
    study = read_study(filled.folder)
    assert [plot.title for plot in plot_tradeoffs(study, recommend(study))] == [
        SERVER,
        BROWSER,
    ]  # of iOS there is one row
    plot = server(study)
    marks = {lane.name: lane.marks for lane in plot.lanes}
    assert list(marks) == ["onnx", "onnx-fp16", "onnx-int8-dynamic", "onnx-int8-static"]  # no GPU, no phone
    (one,) = (tick.x for tick in plot.ticks if tick.text == "1×")
    assert marks["onnx"]["speed"].x == one
    rejected = marks["onnx-int8-static"]["accuracy"]
    assert rejected.x > plot.limit
    assert rejected.title.startswith("spearman of relevance")
    assert marks["onnx-fp16"]["accuracy"].x < plot.limit
    assert [lane.remark for lane in plot.lanes].count("ship") == 1


def test_what_was_rejected_on_other_inputs_does_not_seem_within_its_limits(filled: Any) -> None:
    study = read_study(filled.folder)
    elsewhere = Fact(
        code=Code.LIMIT_EXCEEDED, batch="batch 8", output="relevance", metric="cosine", value=0.9, limit=0.99
    )
    row = next(row for row in study.rows if row.target == "onnx-fp16")
    other = next(row for row in study.rows if row.target == "onnx")
    spoilt = replace(row, status="rejected", reasons=(elsewhere,))
    artifacts = (ReportedArtifact("onnx-fp16", None, (spoilt,)), ReportedArtifact("onnx", None, (other,)))
    mark = server(replace(study, artifacts=artifacts)).lanes[0].marks["accuracy"]
    assert mark.x > LIMIT_SCALE.x(1.0)
    assert "(batch 8)" in mark.title
