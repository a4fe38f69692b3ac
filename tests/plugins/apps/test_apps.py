"""What `edgekit assets` writes: complete, from the manifest, idempotent, and nothing else in the app is touched."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import tree_sitter
import tree_sitter_swift

from edgekit.artifact.store import MANIFEST, amend, read_artifact
from edgekit.errors import ArtifactError, UsageError
from edgekit.storage.files import digest_file
from edgekit_apps import assets as apps
from tests.manifests import resealed
from tests.plugins.apps import toy

SAMPLE = Path(__file__).parents[3] / "mobile"
HOME = "src/main/assets/edgekit/toy"


@pytest.fixture
def app(tmp_path: Path) -> Path:
    return toy.android_app(tmp_path / "app")


def test_android_app_gets_all_that_its_code_names(build: Path, app: Path) -> None:
    outcome = apps.write_assets("android", build, app, trust_build=True)
    index = json.loads((app / HOME / "bundle.json").read_text())
    assert [m["file"] for m in index["models"]] == [
        "executorch-int8/model.pte",
        "executorch/model.pte",
        "litert-int8/model.tflite",
        "litert/model.tflite",
        "onnx/model.onnx",
        "mnn/model.mnn",
        "torch-mobile/model.ptl",
    ]
    gradle = (app / "edgekit" / "edgekit.gradle").read_text()
    assert all(f"'{Path(model['file']).suffix[1:]}'" in gradle for model in index["models"])
    for file in index["files"]:
        path = app / HOME / file["path"]
        assert (path.stat().st_size, digest_file(path)) == (file["size"], file["sha256"])
    on_disk = {p.relative_to(app / HOME).as_posix() for p in (app / HOME).rglob("*") if p.is_file()}
    assert on_disk == {f["path"] for f in index["files"]} | {"bundle.json"}
    assert {"golden.json", "golden.bin", "vocabulary.json", "embeddings.bin"} <= on_disk
    assert outcome.size == sum((app / p).stat().st_size for p in outcome.written)
    code = (app / "src/main/kotlin/edgekit/generated/Toy.kt").read_text()
    folder = re.findall(r'FOLDER: String = "(.+)"', code)[0]
    for path in re.findall(r'"([\w.-]+/[\w.-]+)", "(?:fp32|int8)"', code):
        assert (app / "src/main/assets" / folder / path).is_file()


def test_every_constant_of_the_code_is_the_manifests(build: Path, app: Path) -> None:
    apps.write_assets("android", build, app, trust_build=True)
    code = (app / "src/main/kotlin/edgekit/generated/Toy.kt").read_text()
    for target in ("executorch-int8", "executorch", "litert-int8", "litert", "onnx", "mnn", "torch-mobile"):
        manifest = read_artifact(build / target)
        entry = next(f for f in manifest.files if f.path == manifest.entry)
        name = target.upper().replace("-", "_")
        facts = f'"{manifest.precision}", {entry.size}L, "{entry.sha256}")'
        assert f'{name}("{target}", "{target}/{entry.path}", {facts}' in code
    numbers = re.findall(r"object Images \{(.+?)\n    \}", code, re.DOTALL)[0]
    assert dict(re.findall(r"const val (\w+): \w+ = (.+)", numbers)) == {
        "NAME": '"images"',
        "DTYPE": '"float32"',
        "SIZE_1": "3",
        "HEIGHT": "16",
        "WIDTH": "16",
        "KIND": '"image"',
        "LOW": "0.0",
        "HIGH": "1.0",
    }
    assert r'REFERENCE: String = "NVIDIA H200 \"\$1\""' in code
    assert f'MODEL_SHA256: String = "{read_artifact(build / "onnx").export.model_sha256}"' in code


def test_lists_for_reduced_builds(build: Path, app: Path) -> None:
    apps.write_assets("android", build, app, trust_build=True)
    config = (app / "edgekit/toy.required_operators.config").read_text().splitlines()
    assert config[0].startswith("#")
    assert "ai.onnx;20;MatMul,Softmax" in config
    assert (app / "edgekit/toy.pytorch_operators.yaml").read_text() == "- aten::topk\n- aten::shift_0.0"
    gradle = (app / "edgekit/edgekit.gradle").read_text()
    assert all(f"'{ending}'" in gradle for ending in ("onnx", "pte", "ptl", "tflite", "bin"))


def test_two_models_live_in_one_app(build: Path, app: Path, own: Path) -> None:
    for folder in own.iterdir():
        manifest = folder / MANIFEST
        if manifest.is_file():
            resealed(folder, name="toy-2")
    apps.write_assets("android", build, app, trust_build=True)
    apps.write_assets("android", own, app, trust_build=True)
    assert apps.check_assets("android", build, app, trust_build=True) == ()
    assert apps.check_assets("android", own, app, trust_build=True) == ()
    assert (app / "src/main/kotlin/edgekit/generated/Toy2.kt").is_file()


def test_ios_app_gets_package_code_and_bundle(build: Path, tmp_path: Path) -> None:
    app = tmp_path / "ios"
    (app / "Toy.xcodeproj").mkdir(parents=True)
    apps.write_assets("ios", build, app, trust_build=True)
    home = app / "Edgekit/edgekit/toy"
    index = json.loads((home / "bundle.json").read_text())
    assert [m["file"] for m in index["models"]] == ["coreml/Toy.mlpackage"]
    assert (home / "coreml/Toy.mlpackage/Data/model.mlmodel").is_file()
    assert all(digest_file(home / f["path"]) == f["sha256"] for f in index["files"])
    code = (app / "Edgekit/Toy.swift").read_text()
    assert 'case coreml = "coreml"' in code
    assert 'return ("coreml/Toy.mlpackage", "fp16", 393, ' in code
    assert r'reference = "NVIDIA H200 \"$1\""' in code
    assert parses(code.encode())
    assert apps.check_assets("ios", build, app, trust_build=True) == ()


def parses(source: bytes) -> bool:
    return not tree_sitter.Parser(tree_sitter.Language(tree_sitter_swift.language())).parse(source).root_node.has_error


def test_a_rejected_artifact_enters_no_app(own: Path, app: Path) -> None:
    toy.judge(own / "executorch", "rejected", "max abs 0.3")
    with pytest.raises(ArtifactError, match=r"was rejected in 'cpu' \(max abs 0.3\), so no app may contain it"):
        apps.write_assets("android", own, app, targets=("executorch",), trust_build=True)
    outcome = apps.write_assets("android", own, app, trust_build=True)
    assert "'executorch' was rejected in 'cpu' (max abs 0.3) and was left out" in outcome.notes
    assert not (app / HOME / "executorch").exists()
    for target in ("executorch-int8", "litert", "litert-int8", "onnx", "mnn", "torch-mobile"):
        toy.judge(own / target, "not verified here")
    with pytest.raises(ArtifactError, match="no verified artifact for such an app"):
        apps.write_assets("android", own, app, trust_build=True)


def test_an_artifact_that_was_never_judged_enters_no_app(own: Path, app: Path) -> None:
    amend(own / "onnx", [])
    with pytest.raises(ArtifactError, match="was never judged"):
        apps.write_assets("android", own, app, targets=("onnx",), trust_build=True)


def test_a_damaged_artifact_enters_no_app(own: Path, app: Path) -> None:
    path = own / "torch-mobile" / "model.ptl"
    path.write_bytes(path.read_bytes()[:-1] + b"!")
    with pytest.raises(ArtifactError, match="damaged"):
        apps.write_assets("android", own, app, trust_build=True)
    assert not (app / "edgekit").exists()


@pytest.mark.parametrize(
    ("platform", "sentence"),
    [("android", "is not an Android app module"), ("ios", "is not an iOS app"), ("windows", "no platform 'windows'")],
)
def test_a_folder_that_is_no_app_is_refused(platform: str, sentence: str, build: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=sentence):
        apps.write_assets(platform, build, tmp_path, trust_build=True)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("version", "targets", "taken"),
    [
        (None, (), ["coreml"]),
        (17, (), ["coreml"]),
        (26, ("coreml", "coreai"), ["coreml", "coreai"]),
        (27, (), ["coreai"]),
        (28, ("coreml",), ["coreml"]),
    ],
)
def test_the_deployment_target_decides_between_core_ai_and_core_ml(
    version: int | None, targets: tuple[str, ...], taken: list[str], build: Path, tmp_path: Path
) -> None:
    app = ios_app(tmp_path)
    apps.write_assets("ios", build, app, targets, deployment_target=version, trust_build=True)
    index = json.loads((app / "Edgekit/edgekit/toy/bundle.json").read_text())
    assert [m["manifest"].partition("/")[0] for m in index["models"]] == taken
    paths = {f["path"] for f in index["files"]}
    assert ("coreai/model.aimodel/main.mlirb" in paths) == ("coreai" in taken)
    cases = re.findall(r"case (\w+) = \"(.+)\"", (app / "Edgekit/Toy.swift").read_text())
    assert cases == [(name, name) for name in taken]


@pytest.mark.parametrize(
    ("platform", "version", "targets", "sentence"),
    [
        ("ios", None, ("coreai",), "'coreai' alone does not run on the oldest system of such an app. Add coreml or"),
        ("ios", 26, ("coreai",), "or name a higher --deployment-target"),
        ("ios", 16, (), "the deployment target '16' is too old. The Swift package needs iOS 17 or later"),
        ("android", 27, (), "a deployment target is a version of iOS"),
    ],
)
def test_an_app_that_its_oldest_system_could_not_run_is_refused(
    platform: str, version: int | None, targets: tuple[str, ...], sentence: str, build: Path, app: Path, tmp_path: Path
) -> None:
    folder = app if platform == "android" else ios_app(tmp_path / "ios")
    before = snapshot(folder)
    with pytest.raises(UsageError, match=sentence):
        apps.write_assets(platform, build, folder, targets, deployment_target=version, trust_build=True)
    assert snapshot(folder) == before


def ios_app(folder: Path) -> Path:
    """A Swift package."""
    folder.mkdir(exist_ok=True)
    (folder / "Package.swift").write_text("// swift-tools-version: 5.9\n")
    return folder


@pytest.mark.parametrize("path", ["../outside", "/etc/passwd", "a/../../b"])
def test_a_list_that_names_files_outside_of_the_app_is_refused(path: str, build: Path, app: Path) -> None:
    apps.write_assets("android", build, app, trust_build=True)
    listed = app / "edgekit/toy.assets.json"
    record = json.loads(listed.read_text())
    record["files"][path] = "0" * 64
    listed.write_text(json.dumps(record))
    with pytest.raises(UsageError, match="not a plain path"):
        apps.write_assets("android", build, app, trust_build=True)


def snapshot(folder: Path) -> dict[str, tuple[bytes, int]]:
    """Content and time of change of every file."""
    files = (p for p in folder.rglob("*") if p.is_file())
    return {p.relative_to(folder).as_posix(): (p.read_bytes(), p.stat().st_mtime_ns) for p in files}
