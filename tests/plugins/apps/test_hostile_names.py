"""What a stranger's build may put into an app's code: names, and nothing else."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from edgekit.artifact.manifest import TensorInfo
from edgekit.artifact.store import MANIFEST, read_artifact
from edgekit.storage import verified_io
from edgekit_apps.android import kotlin
from edgekit_apps.apple import swift
from edgekit_apps.bundle import Bundle, Model, identifiers, quote
from tests.command import exit_code

CODE = 'P{init{with((Runtime::getRuntime)()){exec("touch\\u0020/tmp/X")}}};object/**/Q'
HOSTILE = (CODE, "a\nfatalError()", "a*/ x /*", "a b", 'a"b', "a$b", "a\\(b)", "é", "a\n", "")

FIELDS = (
    "model",
    "inputs.name",
    "outputs.name",
    "inputs.kind",
    "outputs.role",
    "inputs.dtype",
    "axis",
    "symbol",
    "precision",
)


def resealed(folder: Path, change: Any) -> None:
    """Change a manifest as somebody would who can compute its hash."""
    record = json.loads((folder / MANIFEST).read_text())
    change(record)
    (folder / MANIFEST).write_text(verified_io.seal_record(record))


def rename(record: dict[str, Any], field: str, word: str) -> None:
    if field == "axis":
        record["axes"][word] = record["axes"].pop("height")
    elif field == "symbol":
        record["outputs"][0]["shape"] = [word, 4]
    elif field == "model":
        record["name"] = word
    elif field in ("precision", "target"):
        record[field] = word
    else:
        place, _, name = field.partition(".")
        record[place][0][name] = word


@pytest.mark.parametrize("platform", ["android", "ios"])
@pytest.mark.parametrize("field", FIELDS)
def test_a_name_that_is_code_enters_no_app(
    own: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], platform: str, field: str
) -> None:
    app = tmp_path / "app"
    (app / "src" / "main").mkdir(parents=True)
    for name in ("build.gradle.kts", "Package.swift"):
        (app / name).touch()
    target = "onnx" if platform == "android" else "coreml"
    manifest = (own / target / MANIFEST).read_bytes()
    before = sorted(app.rglob("*"))
    for word in HOSTILE:
        resealed(own / target, lambda record, word=word: rename(record, field, word))
        assert exit_code("assets", platform, own, "--into", app, "-t", target) == 2, word
        (own / target / MANIFEST).write_bytes(manifest)
    assert sorted(app.rglob("*")) == before
    assert "is damaged" in capsys.readouterr().err


def test_free_text_stays_a_literal(build: Path) -> None:
    """The reference's device is anybody's words: quotes, templates, escapes and line ends."""
    folder = build / "onnx"
    words = 'a"; evil() //\n$x ${y} \\(z) \\u{0} \f\x85\u2028'
    model = Model(folder=folder, manifest=read_artifact(folder), path="m", size=1, sha256="0")
    bundle = Bundle(name="toy", models=(model,), files={}, notes=(), reference_device=words)
    literal = '"a\\"; evil() //?$x ${y} \\\\(z) \\\\u{0} ???"'
    assert f"REFERENCE: String = {literal.replace('$', chr(92) + '$')}\n" in kotlin(bundle)
    assert f"reference = {literal}\n" in swift(bundle)
    assert quote("\x00") == '"?"'


def test_tensors_and_axes_of_any_name_give_code_that_compiles() -> None:
    tensors = [TensorInfo(name=name, dtype="float32") for name in ("models", "a.b", "a_b", "_x")]
    assert identifiers(tensors, ("Models",)) == {"models": "Models_", "a.b": "A_b", "a_b": "A_b_", "_x": "Model_x"}
