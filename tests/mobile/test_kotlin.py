"""The Kotlin library compiles against stubs of the Android SDK, and its SDK-free part passes its tests on the JVM."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from edgekit_apps import assets as apps
from tests import kotlin
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
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    kotlin.require()
    out = tmp_path_factory.mktemp("kotlin")
    sample = _filled_sample(tmp_path_factory.mktemp("sample"))
    junit = CHECK / "stubs" / "org" / "junit" / "Test.java"
    kotlin.run("javac", "-d", out, junit, CHECK / "runner" / "RunTests.java")
    sources = [ANDROID / "edgekit" / "src" / kind / "kotlin" for kind in ("main", "test")]
    kotlin.kotlinc(out, *sources, sample / "src" / "main" / "kotlin", *STUBS)
    return out


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


def test_the_sample_compiles_with_what_assets_wrote(compiled: Path) -> None:
    assert (compiled / "org" / "edgekit" / "sample" / "MainActivity.class").is_file()
    assert (compiled / "edgekit" / "generated" / "ArrCocTiny.class").is_file()
    for runtime in ("ExecuTorch", "LiteRt", "Mnn", "OnnxRuntime", "PyTorchMobile"):
        assert (compiled / "org" / "edgekit" / "android" / f"{runtime}Runner.class").is_file()


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
