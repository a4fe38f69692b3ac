"""`edgekit assets` as a person or a CI job runs it: exit codes and sentences."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.command import exit_code
from tests.manifests import resealed, unchecked
from tests.plugins.apps import toy


def test_check_exits_0_and_after_the_model_changed_3(
    build: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    app = toy.android_app(tmp_path / "app")
    assert exit_code("assets", "android", build, "--trust-build", "--into", app) == 0
    assert " written, 0 removed, 0 unchanged, " in capsys.readouterr().out
    assert exit_code("assets", "android", build, "--trust-build", "--into", app) == 0
    assert capsys.readouterr().out.startswith("0 written, 0 removed, ")
    assert exit_code("assets", "android", build, "--trust-build", "--into", app, "--check") == 0
    assert capsys.readouterr().out == "up to date\n"
    newer = toy.build(tmp_path / "newer" / "toy", shift=0.5)
    assert exit_code("assets", "android", newer, "--trust-build", "--into", app, "--check") == 3
    assert "torch-mobile/model.ptl' is stale" in capsys.readouterr().out


@pytest.mark.parametrize(
    "change", [{"multiple_of": 0}, {"maximum": 10**14, "dynamic": True}, {"default": 10**14, "maximum": 10**14}]
)
def test_sizes_without_end_in_a_manifest_are_one_sentence(
    change: dict[str, int], own: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    axes = unchecked(own / "executorch").axes
    resealed(own / "executorch", axes={name: axis.model_copy(update=change) for name, axis in axes.items()})
    app = toy.android_app(tmp_path / "app")
    before = sorted(app.rglob("*"))
    assert exit_code("assets", "android", own, "--into", app, "-t", "executorch", "--trust-build") == 2
    error = capfd.readouterr().err
    assert error.count("\n") == 1
    assert "executorch/manifest.json' is damaged ('axes." in error
    assert sorted(app.rglob("*")) == before


@pytest.mark.parametrize(
    ("targets", "app", "sentence"),
    [
        ((), "nowhere", "is not an Android app module: it needs build.gradle.kts and src/main"),
        (("-t", "onnx"), "app", "was rejected in 'cpu' (max abs 0.3), so no app may contain it"),
        (("-t", "coreml"), "app", "no app library runs 'coreml'. Possible: "),
        (("-t", "mmn"), "app", "no app library runs 'mmn'"),
    ],
)
def test_bad_input_is_one_sentence_and_exit_2(
    targets: tuple[str, ...], app: str, sentence: str, own: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    toy.android_app(tmp_path / "app")
    toy.judge(own / "onnx", "rejected", "max abs 0.3")
    assert exit_code("assets", "android", own, "--into", tmp_path / app, *targets) == 2
    said = capsys.readouterr().err
    assert sentence in said
    assert len(said.strip().splitlines()) == 1
