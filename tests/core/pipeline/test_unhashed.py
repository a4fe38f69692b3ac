"""run.json and cache/ decide no verdict, and whatever is in them stops no run; a report refuses a changed run.json.

What run.json decides is whether an artifact that its bundle lacks was asked for: verify then counts it as export did.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from edgekit import report
from edgekit.artifact.manifest import Manifest, Variant
from edgekit.artifact.result import EvaluationResult, Result
from edgekit.artifact.run_record import CACHE, RUN
from edgekit.errors import ArtifactError
from edgekit.pipeline import run
from edgekit.pipeline.context import DURATIONS, RunContext, read_durations
from edgekit.report.rows import read_study
from edgekit.storage.verified_io import seal_record
from edgekit.testing import QuietListener
from tests.manifests import result
from tests.plugins.apps import toy

TARGETS = sorted((*toy.FILES, "onnx"))
RUNS = {
    "verified": json.dumps({"targets": {t: {"status": "verified"} for t in (*TARGETS, "web")}}),
    "failed": json.dumps({"targets": {t: {"status": "failed", "error": "a\x1b[31m"} for t in TARGETS}}),
    "nothing": "",
    "no JSON": "{",
    "another shape": json.dumps({"targets": [1]}),
    "not a number": '{"targets": NaN}',
    "deep": "[" * 200_000,
    "large": " " * (20 << 20) + "{}",
}
BROKEN = ("", "{", "[1]", "[" * 200_000)
CACHES = {
    f"{CACHE}/{DURATIONS}": (*BROKEN, '{"onnx": Infinity}', '{"onnx": NaN}', '{"onnx": 1e308}', '{"onnx": -1}'),
    f"{CACHE}/onnx/trials.json": (*BROKEN, '[{"passed": true, "chosen": true, "size": Infinity}]'),
    f"{CACHE}/onnx-int8-static/tried.jsonl": BROKEN,
}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = toy.build(tmp_path_factory.mktemp("unhashed") / "toy")
    toy.judge(root / "coreml", "rejected", "max abs 2 > 1")
    return root


@pytest.fixture
def root(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    def evaluate(context: RunContext, name: str, artifact: Manifest) -> Result:
        place = EvaluationResult(place="cpu", status=artifact.verdicts[0].status)
        return result(place, target=name, artifact_sha256=artifact.sha256)

    monkeypatch.setattr(run, "evaluate", evaluate)
    return Path(shutil.copytree(made, tmp_path / "toy"))


def statuses(root: Path) -> dict[str, str]:
    return {o.target: o.status for o in run.verify(root, QuietListener(), trust_build=True).outcomes}


def shown(root: Path) -> dict[str, set[str]]:
    return {each.target: {row.status for row in each.rows} for each in read_study(root).artifacts}


@pytest.mark.parametrize("kind", RUNS)
def test_a_run_record_that_was_changed_changes_no_verdict(root: Path, kind: str) -> None:
    before, told = shown(root), statuses(root)
    assert told == {t: "rejected" if t == "coreml" else "verified" for t in TARGETS}
    (root / RUN).write_text(RUNS[kind])
    with pytest.raises(ArtifactError, match=r"run\.json' "):
        shown(root)
    assert statuses(root) == told
    assert shown(root) == before


def test_a_run_record_of_somebody_else_is_replaced_by_the_next_run(root: Path) -> None:
    before, told = shown(root), statuses(root)
    (root / RUN).write_text(seal_record({"targets": {t: {"status": "failed", "error": "a\x1b[31m"} for t in TARGETS}}))
    assert shown(root) == {t: {"failed"} for t in TARGETS}
    assert statuses(root) == told
    assert shown(root) == before


@pytest.mark.parametrize(
    ("recorded", "inside", "only", "counted"),
    [
        ({"onnx-fp16": "web"}, ("onnx",), (), []),  # as `edgekit export -t web` ended
        ({"onnx-fp16": ""}, ("onnx",), (), ["onnx-fp16"]),  # it was asked for
        ({"onnx-fp16": "web"}, ("onnx",), ("onnx-fp16",), ["onnx-fp16"]),  # it is asked for now
        ({"onnx-fp16": "web"}, ("onnx", "onnx-fp16"), (), ["onnx-fp16"]),  # the bundle has it
        ({"onnx-fp16": "coreml"}, ("onnx",), (), ["onnx-fp16"]),  # a bundle that has no such part
        ({"onnx-fp16": "elsewhere"}, ("onnx",), (), ["onnx-fp16"]),  # no bundle
    ],
)
def test_a_rejected_part_counts_in_verify_as_it_did_in_export(
    root: Path, recorded: dict[str, str], inside: tuple[str, ...], only: tuple[str, ...], counted: list[str]
) -> None:
    shutil.rmtree(root / "coreml")
    toy.commit(root / "onnx-fp16", "onnx-fp16", {"model.onnx": toy.onnx_model(0.0)}, "rejected")
    names = {"onnx": "fp32", "onnx-fp16": "fp16"}
    held = tuple(Variant(name=names[t], precision=names[t], path="index.html", target=t) for t in inside)
    toy.commit(root / "web", "web", {"index.html": b"page"}, variants=held)
    asked_for = {target: {"status": "rejected", "part_of": bundle} for target, bundle in recorded.items()}
    (root / RUN).write_text(seal_record({"targets": asked_for}))
    for _ in range(2):  # what verify writes down changes nothing
        build = run.verify(root, QuietListener(), only=only, trust_build=True)
        assert build["onnx-fp16"].status == "rejected"
        assert [one.target for one in build.faults] == counted


def test_a_cache_that_was_changed_changes_no_verdict(root: Path) -> None:
    before, told = shown(root), statuses(root)
    for path, texts in CACHES.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        for text in texts:
            (root / path).write_text(text)
            report.write_report(root)
            assert shown(root) == before, (path, text[:40])
    assert statuses(root) == told


def test_a_cache_that_is_a_link_is_not_followed(root: Path) -> None:
    before = shown(root)
    for path in CACHES:
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).symlink_to("/dev/zero")
    assert shown(root) == before
    assert read_durations(root / CACHE) == {}
    (root / RUN).symlink_to("/dev/zero")
    with pytest.raises(ArtifactError, match="not a regular file"):
        shown(root)


def test_durations_that_are_none_are_left_out(tmp_path: Path) -> None:
    (tmp_path / DURATIONS).write_text('{"a": 2.5, "b": Infinity, "c": NaN, "d": -1, "e": 1e308, "f": "3"}')
    assert read_durations(tmp_path) == {"a": 2.5}
