"""What became worse between two builds is found and named, and nothing else is."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save

from edgekit.artifact.result import RESULT, EvaluationResult, Evidence, Measure, Ratio, Result, result_text
from edgekit.report.change import AllowedChange, Change, badness
from edgekit.report.difference import ABSENT, compare_builds
from tests.command import exit_code
from tests.core.report.conftest import enter
from tests.manifests import read_result


@pytest.fixture
def later(filled: Any, tmp_path: Path) -> Path:
    """A second build that says what the first says."""
    folder = tmp_path / "later"
    shutil.copytree(filled.folder, folder)
    return folder


def write_result(folder: Path, found: Result) -> None:
    enter(folder, {RESULT: result_text(found).encode()})


def changed(folder: Path, target: str, **places: Any) -> None:
    """Change the first place of an artifact's result."""
    found = read_result(folder / target)
    first = EvaluationResult.model_validate({**found.places[0].model_dump(), **places})
    write_result(folder / target, found.model_copy(update={"places": (first, *found.places[1:])}))


def measures(folder: Path, target: str, metric: str, **changes: Any) -> tuple[Measure, ...]:
    found = read_result(folder / target)
    return tuple(m.model_copy(update=changes) if m.metric == metric else m for m in found.places[0].measures)


def worse(before: Path, after: Path, **allowed: float) -> list[Change]:
    return list(compare_builds(before, after, AllowedChange(**allowed)).worse)


def test_the_same_build_is_neither_better_nor_worse(filled: Any, later: Path) -> None:
    found = compare_builds(filled.folder, later)
    assert found.changes == ()
    assert found.lines == ("nothing became better or worse",)
    assert exit_code("diff", filled.folder, later) == 0


def test_a_spoilt_build_names_image_and_metric(filled: Any, later: Path, capsys: pytest.CaptureFixture[str]) -> None:
    maps = load_file(later / "onnx" / "scores-cpu.safetensors")
    spoilt = maps["relevance"].copy()
    spoilt[5, 17] += 0.4
    enter(later / "onnx", {"scores-cpu.safetensors": save({"relevance": spoilt})})
    found = measures(later, "onnx", "max abs", value=0.4, passed=False, row="scene-005", index=17)
    changed(later, "onnx", status="rejected", measures=found)
    assert exit_code("diff", filled.folder, later) == 3
    said = capsys.readouterr().out
    assert "WORSE\tonnx · cpu: verdict verified -> rejected" in said
    accuracy = next(line for line in said.splitlines() if "accuracy max abs of 'relevance'" in line)
    assert "-> 0.400 (limit ≤ 1e-4), image 'scene-005'" in accuracy
    assert "WORSE\tonnx · cpu: max abs of 'relevance'" in said
    assert exit_code("diff", later, filled.folder) == 0
    assert "better\tonnx · cpu: verdict rejected -> verified" in capsys.readouterr().out


def test_an_image_that_is_worse_is_named_although_another_stays_the_worst(filled: Any, later: Path) -> None:
    path = later / "onnx-fp16" / "scores-cpu.safetensors"
    maps = load_file(path)["relevance"].copy()
    recorded = filled.relevance
    before = np.abs(maps - recorded).max(1)
    image = int(before.argmin())
    maps[image, 3] = recorded[image, 3] + 0.0015 + before[image]
    enter(path.parent, {path.name: save({"relevance": maps})})
    found = worse(filled.folder, later)
    assert {(c.artifact, c.subject, c.image) for c in found} == {("onnx-fp16 · cpu", "image", f"scene-{image:03d}")}
    assert "max abs of 'relevance'" in {c.what for c in found}


def test_a_number_counts_by_its_share_of_the_limit(filled: Any, later: Path) -> None:
    found = read_result(later / "onnx")
    value = next(m.value for m in found.places[0].measures if m.metric == "max abs")
    assert value is not None
    changed(later, "onnx", measures=measures(later, "onnx", "max abs", value=value + 9e-6))
    assert worse(filled.folder, later) == []
    assert [c.what for c in worse(filled.folder, later, accuracy=0.05)] == ["max abs of 'relevance'"]
    changed(later, "onnx", measures=measures(later, "onnx", "max abs", value=value + 3e-5, limit=1e-2))
    (loosened,) = worse(filled.folder, later)  # the tighter limit counts
    assert loosened.extent == pytest.approx(3.0)
    changed(later, "onnx", measures=measures(later, "onnx", "max abs", value=None))
    assert [c.after for c in worse(filled.folder, later)] == ["not finite"]


def test_what_is_gone_is_worse(filled: Any, later: Path) -> None:
    shutil.rmtree(later / "onnx-fp16")
    (later / "onnx" / "model.onnx").write_bytes(b"damaged")
    kept = [m for m in measures(later, "onnx-int8-dynamic", "max abs") if m.metric != "spearman"]
    changed(later, "onnx-int8-dynamic", measures=tuple(kept))
    told = {(c.artifact, c.subject, c.after) for c in worse(filled.folder, later)}
    assert ("onnx-fp16 · cpu", "verdict", ABSENT) in told
    assert ("onnx", "verdict", "unreadable") in told
    assert ("onnx-int8-dynamic · cpu", "accuracy", "not measured") in told
    back = compare_builds(later, filled.folder)
    assert not back.worse
    assert ("onnx-fp16 · cpu", "verified") in {(c.artifact, c.after) for c in back.better}
    assert ("onnx · cpu", "verified") in {(c.artifact, c.after) for c in back.better}


def test_a_build_without_a_host_was_judged_on_no_other_one(filled: Any, later: Path) -> None:
    for manifest in later.glob("*/manifest.json"):
        manifest.write_text("{")
    assert not any("different hosts" in line for line in compare_builds(filled.folder, later).lines)


def test_a_verdict_that_rests_on_less_is_worse(filled: Any, later: Path) -> None:
    changed(filled.folder, "onnx", evidence=Evidence(inputs={"evaluation": 144, "stress": 30}, shapes=24))
    changed(later, "onnx", evidence=Evidence(inputs={"evaluation": 12, "stress": 30}, shapes=24))
    (found,) = worse(filled.folder, later)
    assert (found.subject, found.what, found.before, found.after) == ("asked", "evaluation", "144", "12")


def test_sizes_and_ratios(filled: Any, later: Path) -> None:
    made = read_result(later / "onnx-fp16")
    slow = [
        r.model_copy(update={n: getattr(r, n) * 0.5 for n in ("value", "low", "high")}) for r in made.places[0].ratios
    ]
    place = made.places[0].model_copy(update={"ratios": tuple(slow)})
    write_result(later / "onnx-fp16", made.model_copy(update={"places": (place,), "size": int(made.size * 1.1)}))
    found = worse(filled.folder, later)
    assert [c.subject for c in found] == ["speed", "speed", "size"]
    assert {c.what for c in found} == {"against onnx", "against pytorch", ""}
    assert worse(filled.folder, later, speed=0.6, size=0.2) == []
    wide = [r.model_copy(update={"low": r.value / 3, "high": r.value * 3}) for r in slow]
    place = made.places[0].model_copy(update={"ratios": tuple(wide)})
    write_result(later / "onnx-fp16", made.model_copy(update={"places": (place,)}))
    assert worse(filled.folder, later) == []  # too noisy to say


def test_noise_of_a_busy_host_is_no_change_of_speed(filled: Any, later: Path) -> None:
    made = read_result(later / "onnx-fp16")
    first = made.places[0]
    wide = Ratio(baseline="pytorch", value=1.61, low=1.2, high=2.3)
    slow = Ratio(baseline="pytorch", value=1.61, low=1.6, high=1.62)
    for ratio, host, count in ((wide, made.host, 0), (slow, made.host, 1), (slow, {"processor": "another"}, 0)):
        place = first.model_copy(update={"ratios": (ratio,)})
        write_result(later / "onnx-fp16", made.model_copy(update={"places": (place,), "host": host}))
        assert [c.subject for c in worse(filled.folder, later)] == ["speed"] * count


def test_a_damaged_reference_model_or_program_is_worse(small_build: Path, tmp_path: Path) -> None:
    later = Path(shutil.copytree(small_build, tmp_path / "later"))
    assert compare_builds(small_build, later).changes == ()
    parts = (sorted(p for p in (later / part).rglob("*") if p.is_file()) for part in ("reference", "model", "program"))
    for path in (path for files in parts for path in {files[0], files[-1]}):
        data = path.read_bytes()
        path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
        (found,) = worse(small_build, later)
        assert found.artifact == f"the {path.relative_to(later).parts[0]}", path
        path.unlink()
        path.write_bytes(data)


def test_the_record_and_the_table(filled: Any, later: Path, capsys: pytest.CaptureFixture[str]) -> None:
    changed(later, "onnx", status="rejected")
    assert exit_code("diff", filled.folder, later, "--json") == 3
    record = json.loads(capsys.readouterr().out)
    assert (record["schema_version"], record["worse"], record["better"]) == (1, 1, 0)
    assert record["changes"][0]["artifact"] == "onnx · cpu"
    assert exit_code("diff", filled.folder, later, "--markdown") == 3
    assert "| ❌ | onnx · cpu | verdict | verified | rejected |" in capsys.readouterr().out


def test_a_folder_that_is_no_build_is_one_sentence(
    filled: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert exit_code("diff", filled.folder, tmp_path / "nothing") == 2
    assert "is not a folder" in capsys.readouterr().err


def test_distance_from_the_best() -> None:
    assert badness("max abs", 1e-3) == 1e-3
    assert badness("spearman", 0.99) == pytest.approx(0.01)
    assert badness("snr", 20.0) == pytest.approx(0.1)
    assert badness("snr", None) == float("inf")
