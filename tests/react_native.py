"""The React Native module here: npm's packages, codegen's interface, and Kotlin on a JVM that JavaScript calls."""

from __future__ import annotations

import hashlib
import json
import shutil
import sys
from pathlib import Path

import numpy as np

from edgekit_apps import assets as apps
from tests import kotlin
from tests.kotlin import ANDROID, CHECK, STUBS
from tests.processes import printed

MODULE = ANDROID.parent / "react-native"
TOOLS = MODULE / "node_modules"
HOST = (MODULE / "check" / "Host.kt", MODULE / "check" / "stubs", MODULE / "android" / "src" / "main" / "java")
REACT = TOOLS / "react-native" / "ReactAndroid" / "src" / "main" / "java" / "com" / "facebook" / "react"
INTERFACES = (
    *(f"bridge/{name}.kt" for name in ("Promise", "ReactMethod", "ReadableType", "ReadableMapKeySetIterator")),
    *(f"bridge/{kind}{name}.kt" for kind in ("Readable", "Writable", "JavaOnly") for name in ("Array", "Map")),
    *(f"bridge/Dynamic{kind}.kt" for kind in ("", "FromArray", "FromMap", "FromObject")),
    *(f"module/model/ReactModuleInfo{kind}.kt" for kind in ("", "Provider")),
    "bridge/NativeModule.java",
    "turbomodule/core/interfaces/TurboModule.kt",
)
"""What the module uses of React Native that needs no Android: its own sources."""
VOCABULARY = {"dim": 16, "scale": 0.01, "offset": 0.0, "words": ["red", "circle"], "rows": [0, 1]}
EMBEDDINGS = np.random.default_rng(4).integers(-128, 128, (2, 16)).astype(np.int8)
THRESHOLD = 0.4


def missing() -> str:
    """What to install; empty where nothing is missing."""
    if shutil.which("npm") is None:
        return "npm is not installed. Install Node 20"
    if not (TOOLS / "typescript").is_dir():
        return "the npm packages are not installed: npm ci --ignore-scripts in mobile/react-native/"
    return ""


def generate(out: Path) -> Path:
    """Write `schema.json`, and the interfaces that codegen makes from NativeEdgekit.ts, into a folder."""
    codegen = TOOLS / "@react-native" / "codegen" / "lib" / "cli"
    settings = json.loads((MODULE / "package.json").read_text())["codegenConfig"]
    package = settings["android"]["javaPackageName"]
    schema = str(out / "schema.json")
    printed(MODULE, "node", str(codegen / "combine" / "combine-js-to-schema-cli.js"), schema, settings["jsSrcsDir"])
    command = str(codegen / "generators" / "generate-all.js")
    printed(MODULE, "node", command, schema, settings["name"], str(out), package, "false")
    return out


def sources(generated: Path) -> tuple[Path, ...]:
    """What is compiled together with the Kotlin library and its stubs."""
    return (*HOST, generated / "java", *(REACT / path for path in INTERFACES))


def small_bundle(build: Path, app: Path) -> Path:
    """What `edgekit assets` writes of the small model, with a vocabulary and a threshold."""
    (app / "src" / "main").mkdir(parents=True)
    (app / "build.gradle.kts").touch()
    apps.write_assets("android", build, app, ("onnx",), trust_build=True)
    bundle = app / "src" / "main" / "assets" / "edgekit" / "small"
    presence = {"output": "relevance", "statistic": "max", "threshold": THRESHOLD}
    files = {
        "vocabulary.json": json.dumps(VOCABULARY).encode(),
        "embeddings.bin": EMBEDDINGS.tobytes(),
        "presence.json": json.dumps(presence).encode(),
    }
    rewrite(bundle, files)
    return bundle


def golden(bundle: Path, limit: float) -> bytes:
    """The golden vectors of a bundle with another limit of the scores."""
    vectors = json.loads((bundle / "golden.json").read_text())
    vectors["limits"]["onnx"]["relevance"]["max_abs"] = limit
    return json.dumps(vectors).encode()


def rewrite(bundle: Path, files: dict[str, bytes]) -> None:
    """Write files of a bundle, and their hashes into its index."""
    index = json.loads((bundle / "bundle.json").read_text())
    infos = [info for info in index["files"] if info["path"] not in files]
    for name, data in files.items():
        (bundle / name).write_bytes(data)
        infos.append({"path": name, "size": len(data), "sha256": hashlib.sha256(data).hexdigest()})
    (bundle / "bundle.json").write_text(json.dumps(index | {"files": infos}))


def call_on_jvm(compiled: Path, generated: Path, bundle: Path, cases: Path, folder: Path) -> str:
    """What tests/on_jvm.ts prints of a bundle and a file of cases; Kotlin is compiled, Java into a folder here."""
    role = CHECK / "phone"
    java = [*(generated / "java").rglob("*.java"), REACT / "bridge" / "NativeModule.java", *HOST[1].rglob("*.java")]
    paths = ("-cp", str(compiled), "-sourcepath", kotlin.classpath(role, HOST[1], *STUBS))
    kotlin.run("javac", "-nowarn", "-d", folder / "phone", *paths, *java, *sorted(role.rglob("*.java")))
    printed(MODULE, "node", str(TOOLS / "typescript" / "bin" / "tsc"), "-p", "tests")
    command = [
        *("node", "--import", str(MODULE / "tests" / "turbo_module.mjs")),
        *(str(MODULE / "build" / "mobile" / "react-native" / "tests" / "on_jvm.js"), bundle.as_uri(), "onnx"),
        *(str(cases), "java", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"),
        *(f"-Dphone.python={sys.executable}", f"-Dphone.runtime={role / 'runtime.py'}"),
        *("-cp", kotlin.classpath(folder / "phone", compiled, *kotlin.RUN), "HostKt"),
    ]
    return printed(MODULE, *command).splitlines()[-1]
