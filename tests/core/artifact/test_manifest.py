from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from pydantic import ValidationError

from edgekit.artifact import manifest as records
from edgekit.artifact.manifest import AxisInfo, File, Manifest, TensorInfo
from edgekit.model.spec import Axis, Input, Output
from tests.manifests import manifest

SCHEMA = json.loads((Path(records.__file__).parent / "manifest.schema.json").read_text())


def made(**changes: Any) -> Manifest:
    return manifest(**{"files": ({"path": "model.onnx", "size": 3, "sha256": "3" * 64},), **changes})


def test_a_manifest_fits_the_schema_that_web_and_mobile_read() -> None:
    axes = {"batch": AxisInfo.of_axis(Axis(1, 1, 8), dynamic=True)}
    inputs = (TensorInfo.of_input(Input("images", ("batch", 3, 4, 4), low=-1.0, kind="image")),)
    outputs = (TensorInfo.of_output(Output("n", "counts", "y", "int64", 64, 400), ("batch", 16)),)
    verdicts = ({"place": "cpu", "status": "verified", "proof": ({"batch": 2},)},)
    whole = made(axes=axes, inputs=inputs, outputs=outputs, verdicts=verdicts)
    jsonschema.validate(json.loads(whole.model_dump_json()), SCHEMA)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(json.loads(whole.model_dump_json()) | {"files": [{"path": "x"}]}, SCHEMA)


def test_what_a_model_declares_is_what_the_manifest_says() -> None:
    given = TensorInfo.of_input(Input("images", ("batch", 3, "height"), "uint8", -1.0, 3.0, "image"))
    assert given.model_dump() == {
        "name": "images",
        "dtype": "uint8",
        "shape": ("batch", 3, "height"),
        "kind": "image",
        "fit": "stretch",
        "role": "tensor",
        "of": "",
        "low": -1.0,
        "high": 3.0,
        "classes": (),
        "threshold": None,
    }
    made = Output("n", "counts", "y", "int64", 64, 400, classes=("few", "many"), threshold=0.5)
    answered = TensorInfo.of_output(made, ("batch", 16))
    assert answered.model_dump() == {
        "name": "n",
        "dtype": "int64",
        "shape": ("batch", 16),
        "kind": "tensor",
        "fit": "stretch",
        "role": "counts",
        "of": "y",
        "low": 64.0,
        "high": 400.0,
        "classes": ("few", "many"),
        "threshold": 0.5,
    }
    fixed = AxisInfo.of_axis(Axis(224, 96, 512, 16), dynamic=False)
    sizes = {"default": 224, "minimum": 96, "maximum": 512, "multiple_of": 16}
    assert fixed.model_dump() == {**sizes, "dynamic": False}


@pytest.mark.parametrize("path", ["", "/etc/passwd", "../x", "a/../../x", "a\\b", "C:x", "a\0b", "a//b", "./a"])
def test_a_file_that_is_not_inside_is_refused(path: str) -> None:
    with pytest.raises(ValidationError, match="not a plain relative path"):
        File(path=path, size=1, sha256="0" * 64)


def test_the_hash_of_an_artifact_is_that_of_its_files_and_nothing_else() -> None:
    other = ({"path": "model.onnx", "size": 3, "sha256": "4" * 64},)
    assert made().sha256 == made(axes={}, notes=("a note",), verdicts=({"place": "cpu", "status": "rejected"},)).sha256
    assert made().sha256 != made(files=other).sha256
    assert made().sha256 != made(files=({"path": "other.onnx", "size": 3, "sha256": "3" * 64},)).sha256


def test_static_and_rejected_are_read_off() -> None:
    dynamic = AxisInfo.of_axis(Axis(1), dynamic=True)
    assert made().static
    assert not made(axes={"batch": dynamic}).static
    assert not made(verdicts=({"place": "a", "status": "not verified here"},)).rejected
    assert made(verdicts=({"place": "a", "status": "verified"}, {"place": "b", "status": "rejected"})).rejected


def test_the_size_of_an_artifact_holds_the_weights_beside_its_entry() -> None:
    files = [{"path": path, "size": 3, "sha256": "3" * 64} for path in ("model.xml", "model.bin", "model.extra.ptl")]
    assert made(entry="model.xml", files=tuple(files)).size == 6
    outside = [{"path": path, "size": 3, "sha256": "3" * 64} for path in ("model.onnx", "model.onnx.data")]
    assert made(files=tuple(outside)).size == 6


def test_an_artifact_with_files_of_fixed_sizes_takes_these_alone() -> None:
    fixed = made(sizes=({"height": 8, "width": 4}, {"height": 16, "width": 8}))
    assert fixed.takes({"height": 16, "width": 8})
    assert fixed.takes({"height": 8})
    assert not fixed.takes({"height": 8, "width": 8})
    assert not fixed.takes({"height": 12})
    assert made().takes({"height": 12})
