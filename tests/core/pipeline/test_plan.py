"""A bundle brings what belongs into it, unless the user narrows it; what fails of that is no fault of the run."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgekit import registry
from edgekit.errors import UsageError
from edgekit.pipeline.outcome import Build, TargetOutcome
from edgekit.pipeline.plan import parts_of, plan_run, reserves_of

FP16, STATIC, DYNAMIC = "onnx-fp16", "onnx-int8-static", "onnx-int8-dynamic"


@pytest.mark.parametrize(
    ("selected", "options", "brought"),
    [
        (("web",), {}, {FP16, STATIC, DYNAMIC}),
        (("onnx", "web"), {}, {FP16, STATIC, DYNAMIC}),
        (("web", DYNAMIC), {}, {FP16}),
        (("web",), {"int8": "dynamic"}, {FP16, DYNAMIC}),
        (("web",), {"variants": "fp32"}, set()),
        (("web",), {"variants": "fp32,q8", "int8": "static"}, {STATIC}),
        (("web", FP16, STATIC, DYNAMIC), {}, set()),
        (("onnx",), {}, set()),
    ],
)
def test_what_a_bundle_brings(selected: tuple[str, ...], options: dict[str, object], brought: set[str]) -> None:
    targets, _ = registry.loadable()
    found = parts_of(selected, targets, {"web": options})
    assert found == dict.fromkeys(found, "web")
    assert set(found) == brought


@pytest.mark.parametrize(
    ("selected", "options", "reserves"),
    [
        (("web",), {}, {DYNAMIC: STATIC}),
        (("web",), {"int8": "dynamic"}, {}),
        (("web", DYNAMIC), {}, {}),
        (("web", STATIC), {}, {}),
    ],
)
def test_dynamic_int8_waits_until_static_is_wrong(
    selected: tuple[str, ...], options: dict[str, object], reserves: dict[str, str]
) -> None:
    targets, _ = registry.loadable()
    brought = parts_of(selected, targets, {"web": options})
    assert reserves_of(brought, targets, {"web": options}) == reserves


def test_parts_come_before_their_bundle_and_take_options() -> None:
    targets, _ = registry.loadable()
    order, options, brought = plan_run(targets, ("web",), {STATIC: {"search": "none"}})
    assert order[0] == "onnx"
    assert order[-1] == "web"
    assert set(order[1:-1]) == set(brought) == {FP16, STATIC, DYNAMIC}
    assert options[STATIC]["search"] == "none"
    with pytest.raises(UsageError, match="'onnx-int8-static', which is not selected"):
        plan_run(targets, ("web",), {STATIC: {"search": "none"}, "web": {"variants": "fp32"}})


def test_a_part_that_is_not_installed_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    targets, _ = registry.loadable()
    missing = registry.missing
    monkeypatch.setattr(registry, "missing", lambda t: t.needs[:1] or ("x",) if t is targets[STATIC] else missing(t))
    assert set(parts_of(("web",), targets, {})) == {FP16, DYNAMIC}


def test_a_part_that_is_wrong_is_told_and_does_not_fail_the_run() -> None:
    part = TargetOutcome(STATIC, Path("s"), "failed", "no recipe holds", part_of="web")
    bundle = TargetOutcome("web", Path("w"), "verified")
    build = Build((part, bundle), Path("b"), "an H200")
    assert build.ok
    build.raise_for_verdict()
    assert "left out of 'web', which works without it" in part.sentences
    assert part.as_record().part_of == "web"
    assert not Build((TargetOutcome(STATIC, Path("s"), "failed", "no"), bundle), Path("b"), "an H200").ok
