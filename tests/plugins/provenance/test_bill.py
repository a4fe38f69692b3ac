"""The bill of materials: valid, complete, the same bytes for the same build, and honest about what nobody stated."""

from __future__ import annotations

import json
import re
import sys
from importlib import util
from pathlib import Path
from typing import Any

import pytest

from edgekit.artifact.store import read_artifact
from edgekit.errors import ArtifactError, DependencyError, install_command
from edgekit.model.records import read_config
from edgekit.pipeline.outcome import Build, TargetOutcome
from edgekit.reference.info import read_info
from edgekit.storage.files import digest_file
from edgekit_provenance import bill, signature
from tests.command import exit_code
from tests.keys import NO_LIBRARY, write_keys
from tests.manifests import resealed
from tests.plugins.apps import toy

pytestmark = pytest.mark.skipif(
    util.find_spec("cyclonedx") is None, reason="no cyclonedx-python-lib: pip install -e '.[sign]'"
)
TOOLS = {"torch": "2.13.0+cpu", "onnx": "1.23.2"}


@pytest.fixture(scope="module")
def build(tmp_path_factory: pytest.TempPathFactory) -> Build:
    root = toy.build(tmp_path_factory.mktemp("bill") / "toy")
    export = read_artifact(root / "onnx").export.model_copy(update={"tools": TOOLS})
    resealed(root / "onnx", export=export)
    toy.judge(root / "coreml", "rejected", "max abs 2 > 1")
    made = {target: read_artifact(root / target) for target in ("onnx", "coreml")}
    return Build(tuple(TargetOutcome(t, root / t, m.verdicts[0].status, manifest=m) for t, m in made.items()), root, "")


@pytest.fixture(scope="module")
def told(build: Build) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(bill.write_bill(build).read_text())
    return found


def component(told: dict[str, Any], ref: str) -> dict[str, Any]:
    parts = [told["metadata"]["component"], *told["components"], *told["metadata"]["tools"]["components"]]
    [found] = [one for one in parts if one["bom-ref"] == ref]
    return {**found, "properties": {p["name"]: p["value"] for p in found.get("properties", ())}}


def test_it_is_valid(build: Build, told: dict[str, Any]) -> None:
    from cyclonedx.schema import SchemaVersion
    from cyclonedx.validation.json import JsonStrictValidator

    validator = JsonStrictValidator(SchemaVersion.V1_6)
    assert validator.validate_str((build.path / bill.BILL).read_text()) is None
    assert validator.validate_str(json.dumps({**told, "components": [{"type": "?"}]})) is not None


def test_it_names_the_model_the_data_the_artifacts_and_the_tools(build: Build, told: dict[str, Any]) -> None:
    model, config = component(told, "model"), read_config(build.path / "model")
    assert (model["type"], model["name"]) == ("machine-learning-model", "toy")
    assert model["hashes"] == [{"alg": "SHA-256", "content": config["files"]["model.safetensors"]}]
    assert model["properties"]["edgekit:reference.device"] == 'NVIDIA H200 "$1"'
    data = component(told, "data:evaluation")
    assert (data["type"], data["properties"]["edgekit:samples"]) == ("data", "3")
    [batch] = [b for b in read_info(build.path / "reference").batches if b.name == "evaluation"]
    assert data["properties"]["edgekit:arrays.sha256"] == batch.inputs_sha256
    made = component(told, "artifact:onnx")
    assert made["properties"]["edgekit:verdict.cpu"] == "verified"
    assert component(told, "artifact:coreml")["properties"]["edgekit:verdict.cpu"] == "rejected"
    torch = component(told, "tool:torch")
    assert (torch["version"], torch["purl"]) == ("2.13.0+cpu", "pkg:pypi/torch@2.13.0%2Bcpu")
    assert component(told, "tool:edgekit-export")["licenses"] == [{"license": {"id": "Apache-2.0"}}]
    depends = {one["ref"]: one.get("dependsOn") for one in told["dependencies"]}
    assert depends["artifact:onnx"] == ["model"]
    assert "data:evaluation" in depends["model"]


def test_each_hash_is_that_of_the_file_of_its_name(build: Build, told: dict[str, Any]) -> None:
    """As `sha256sum` says it."""
    for target, entry in (("onnx", "model.onnx"), ("coreml", "")):
        whole, there = component(told, f"artifact:{target}"), {}
        if entry:
            there[entry] = whole["hashes"][0]["content"]
        else:
            assert "hashes" not in whole
        there |= {part["name"]: part["hashes"][0]["content"] for part in whole.get("components", ())}
        files = {file.path for file in read_artifact(build.path / target).files}
        assert there == {path: digest_file(build.path / target / path) for path in files}
    assert component(told, "model")["hashes"][0]["content"] == digest_file(build.path / "model" / "model.safetensors")


def test_a_tool_has_the_licence_that_its_metadata_states(told: dict[str, Any]) -> None:
    for name in ("torch", "onnx"):
        assert component(told, f"tool:{name}")["licenses"]


def test_a_licence_that_nobody_stated_is_not_made_up(build: Build, told: dict[str, Any]) -> None:
    for ref in ("model", "artifact:onnx", "data:evaluation"):
        assert "licenses" not in component(told, ref)
        assert component(told, ref)["properties"][bill.LICENCE] == "not stated"
    stated = {**read_config(build.path / "model"), "licence": "Apache-2.0", "author": "Me"}
    made = read_artifact(build.path / "onnx")
    again = json.loads(bill.bill_text(stated, read_info(build.path / "reference"), [made]))
    assert component(again, "model")["licenses"] == [{"license": {"id": "Apache-2.0"}}]
    assert component(again, "model")["authors"] == [{"name": "Me"}]
    assert bill.LICENCE not in component(again, "artifact:onnx")["properties"]


def test_the_same_build_gives_the_same_bytes_and_another_one_another_number(
    build: Build, told: dict[str, Any], tmp_path: Path
) -> None:
    before = (build.path / bill.BILL).read_bytes()
    assert bill.write_bill(build).read_bytes() == before
    assert "timestamp" not in before.decode()
    assert str(build.path) not in before.decode()
    made = read_artifact(build.path / "onnx")
    config, recorded = read_config(build.path / "model"), read_info(build.path / "reference")
    other = json.loads(bill.bill_text(config, recorded, [made.model_copy(update={"precision": "fp16"})]))
    assert other["serialNumber"] != told["serialNumber"]


@NO_LIBRARY
def test_a_signature_vouches_for_it(build: Build, tmp_path: Path) -> None:
    private, public = write_keys(tmp_path, "release")
    bill.write_bill(build)
    signature.sign(build, signature.signer_of(private))
    signature.require_signed(build.path, public)
    path = build.path / bill.BILL
    text = path.read_text()
    path.write_text(text.replace("not stated", "MIT"))
    with pytest.raises(ArtifactError, match=r"changed: bom\.cdx\.json"):
        signature.require_signed(build.path, public)
    path.unlink()
    with pytest.raises(ArtifactError, match=r"missing: bom\.cdx\.json"):
        signature.require_signed(build.path, public)


def test_without_the_library_it_is_named_before_an_export_begins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "cyclonedx"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "cyclonedx", None)
    with pytest.raises(DependencyError, match="needs cyclonedx-python-lib .*: " + re.escape(install_command("sign"))):
        bill.require_library()
    assert exit_code("export", "-t", "onnx", "-o", tmp_path / "build", "--bom") == 2
    assert "cyclonedx-python-lib" in capsys.readouterr().err
    assert not (tmp_path / "build").exists()
