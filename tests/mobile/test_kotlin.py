"""The Kotlin library compiles against stubs of the Android SDK, and its SDK-free part passes its tests on the JVM."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgekit.runtime.ort import OrtRuntime
from edgekit_apps import assets as apps
from tests import kotlin, react_native
from tests.kotlin import ANDROID, CHECK, LIBRARIES, STUBS
from tests.manifests import read_result
from tests.plugins.apps import toy

ROOT = Path(__file__).parents[2]
FREE = (
    "import java.",
    "import kotlin.",
    "import kotlinx.coroutines.",
    "import kotlinx.serialization.",
    "import org.edgekit.",
)
TESTS = sorted((ANDROID / "edgekit" / "src" / "test" / "kotlin" / "org" / "edgekit").glob("*Test.kt"))


@pytest.fixture(scope="module")
def interface(tmp_path_factory: pytest.TempPathFactory) -> Path | None:
    """What React Native's codegen writes for its module; None where npm installed nothing."""
    kotlin.require()
    return None if react_native.missing() else react_native.generate(tmp_path_factory.mktemp("codegen"))


@pytest.fixture(scope="module")
def compiled(interface: Path | None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    kotlin.require()
    out = tmp_path_factory.mktemp("kotlin")
    sample = _filled_sample(tmp_path_factory.mktemp("sample"))
    junit = CHECK / "stubs" / "org" / "junit" / "Test.java"
    kotlin.run("javac", "-d", out, junit, CHECK / "runner" / "RunTests.java")
    sources = [ANDROID / "edgekit" / "src" / kind / "kotlin" for kind in ("main", "test")]
    module = () if interface is None else react_native.sources(interface)  # together: most of the time is the library's
    kotlin.kotlinc(out, *sources, sample / "src" / "main" / "kotlin", *module, *STUBS)
    return out


@pytest.mark.nightly
def test_the_tests_of_the_library_pass_on_the_jvm(compiled: Path, tmp_path: Path) -> None:
    run = subprocess.run(
        [
            "java",
            f"-Dedgekit.golden={ROOT / 'tests' / 'golden'}",
            f"-Dedgekit.result={tmp_path / 'result.json'}",
            f"-Dedgekit.fuzz={60 if os.environ.get('EDGEKIT_SLOW') else 0.5}",
            "-cp",
            kotlin.classpath(compiled, LIBRARIES / "kotlin-test.jar", *kotlin.RUN),
            "RunTests",
            *(f"org.edgekit.{path.stem}" for path in TESTS),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stdout
    count = sum(path.read_text().count("@Test\n") for path in TESTS)
    assert f"{count} passed, 0 failed" in run.stdout
    _reads_as_a_result(tmp_path)


def _reads_as_a_result(folder: Path) -> None:
    """What the phone writes, edgekit reads: the same record, with a verdict, measures and a timing."""
    found = read_result(folder)
    assert found.status == "verified"
    (place,) = found.places
    assert [(m.metric, m.row) for m in place.measures] == [("max abs", "ramp")]
    assert place.timings["candidate"].runs == 5


@pytest.mark.nightly
def test_the_sample_compiles_with_what_assets_wrote(compiled: Path) -> None:
    assert (compiled / "org" / "edgekit" / "sample" / "MainActivity.class").is_file()
    assert (compiled / "edgekit" / "generated" / "ArrCocTiny.class").is_file()
    for runtime in ("ExecuTorch", "LiteRt", "Mnn", "OnnxRuntime", "PyTorchMobile"):
        assert (compiled / "org" / "edgekit" / "android" / f"{runtime}Runner.class").is_file()


@pytest.mark.nightly
def test_the_react_native_module_answers_as_onnx_runtime_does(
    compiled: Path, interface: Path | None, small_build: Path, tmp_path: Path
) -> None:
    """JavaScript calls the module, compiled to codegen's interface; behind Java classes is the real ONNX Runtime."""
    if interface is None:
        pytest.skip(react_native.missing())
    bundle = react_native.small_bundle(small_build, tmp_path / "app")
    draw = np.random.default_rng(3)
    pictures = [draw.integers(0, 256, (height, width, 3), np.uint8) for height, width in ((96, 96), (160, 112))]
    vector = draw.uniform(-1, 1, 16).astype(np.float32)
    cases: list[dict[str, Any]] = [
        {"pixels": p.ravel().tolist(), "height": p.shape[0], "width": p.shape[1]} | query
        for p, query in zip(pictures, ({"vector": vector.tolist()}, {"words": "Red circle"}), strict=True)
    ]
    damaged = Path(shutil.copytree(bundle, tmp_path / "damaged"))
    (damaged / "embeddings.bin").write_bytes(bytes(32))
    differing = Path(shutil.copytree(bundle, tmp_path / "differing"))
    react_native.rewrite(differing, {"golden.json": react_native.golden(bundle, limit=0)})
    refused = [folder.as_uri() for folder in (tmp_path / "nowhere", damaged, differing)]
    file = tmp_path / "cases.json"
    file.write_text(json.dumps({"cases": cases, "refused": refused}))
    answer = json.loads(react_native.call_on_jvm(compiled, interface, bundle, file, tmp_path))
    table = np.float32(0.01) * react_native.EMBEDDINGS
    with closing(OrtRuntime(small_build / "onnx" / "model.onnx")) as model:
        for result, picture, query in zip(answer["results"], pictures, (vector, table.mean(axis=0)), strict=True):
            images = picture.transpose(2, 0, 1)[None].astype(np.float32) / np.float32(255)
            expected = model.run({"images": images, "queries": query[None].astype(np.float32)})
            assert result["relevance"] == pytest.approx(expected["relevance"][0].tolist(), abs=1e-5)
            assert result["indices"] == expected["indices"][0].tolist()
            assert result["budgets"] == expected["budgets"][0].tolist()
            rows, columns = picture.shape[0] // 16, picture.shape[1] // 16
            assert (result["rows"], result["columns"]) == (rows, columns)
            assert result["present"] == bool(expected["relevance"].max() >= react_native.THRESHOLD)
    assert [result["known"] for result in answer["results"]] == [[], ["red", "circle"]]
    info = answer["info"]
    assert (info["name"], info["target"], info["verified"], info["selfTest"]["pass"]) == ("small", "onnx", True, True)
    assert answer["threshold"] == react_native.THRESHOLD
    assert len(answer["tested"]) >= 1
    *errors_of_bundles, difference = answer["refused"]
    assert errors_of_bundles == [
        f"ASSET_MISSING: there is no bundle '{refused[0]}': run edgekit assets android",
        "HASH_MISMATCH: 'embeddings.bin' is damaged: install the app again",
    ]
    assert re.fullmatch(
        r"SELF_TEST: this device differs from the reference in '.+': the largest error of .+", difference
    )
    assert answer["errors"] == [
        "BACKEND: the bundle has no model 'litert': possible are onnx",
        "IMAGE: 27645 bytes are not the RGB or RGBA pixels of 96 x 96",
        "QUERY: the model does not know 'purple': try for example 'red', 'circle'",
        "BACKEND: the model 'small' does not accept pictures of 97 x 96: "
        "it accepts [96 to 160 in steps of 16, 96 to 160 in steps of 16]",
        "USAGE: the runner was disposed: load the bundle again",
    ]


def test_sdk_free_files_import_no_sdk() -> None:
    library, bench = (ANDROID / part / "src" / "main" / "kotlin" / "org" / "edgekit" for part in ("edgekit", "bench"))
    files = [p for p in (*library.glob("*.kt"), *bench.glob("bench/*.kt")) if p.stem != "BenchInstrumentation"]
    assert {path.parent for path in files} == {library, bench / "bench"}
    for path in files:
        imported = [line for line in path.read_text().splitlines() if line.startswith("import ")]
        assert all(line.startswith(FREE) and "org.edgekit.android" not in line for line in imported), path.name


def _filled_sample(folder: Path) -> Path:
    """The sample app with the assets of a build of the same name."""
    sample = Path(shutil.copytree(ANDROID / "sample", folder / "sample", ignore=_written_by_assets))
    apps.write_assets(
        "android", toy.build(folder / "build" / "arr-coc-tiny", name="arr-coc-tiny"), sample, trust_build=True
    )
    applied = re.findall(r'apply\(from = "(.+)"\)', (sample / "build.gradle.kts").read_text())
    assert applied
    assert all((sample / path).is_file() for path in applied)
    return sample


def _written_by_assets(folder: str, names: list[str]) -> set[str]:
    """What an earlier `edgekit assets` left in the sample, as .gitignore lists it."""
    here = Path(folder).relative_to(ANDROID).as_posix()
    listed = (ANDROID / ".gitignore").read_text().splitlines()
    return {name for name in names if f"{here}/{name}/" in listed}
