"""The React Native module: types, unit tests, codegen, its package. test_kotlin.py runs its Kotlin.

Swift and Objective-C are held to the interfaces that codegen writes, and parsed; nothing compiles them here.
"""

from __future__ import annotations

import json
import re
import tarfile
import tomllib
from pathlib import Path

import pytest

from tests import react_native
from tests.kotlin import ANDROID
from tests.mobile.test_swift import errors
from tests.processes import printed
from tests.react_native import MODULE

SWIFT = MODULE / "ios" / "EdgekitModule.swift"


@pytest.fixture(scope="module", autouse=True)
def _tools() -> None:
    if reason := react_native.missing():
        pytest.skip(reason)


@pytest.fixture(scope="module")
def generated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with `schema.json` and all that codegen writes from NativeEdgekit.ts."""
    return react_native.generate(tmp_path_factory.mktemp("codegen"))


def test_types_and_unit_tests_pass() -> None:
    printed(MODULE, "npm", "run", "check")
    assert re.search(r"^# pass [1-9]", printed(MODULE, "npm", "test"), re.MULTILINE)


def test_swift_parses_and_answers_with_the_fields_of_the_interface(generated: Path) -> None:
    assert errors(SWIFT.read_bytes()) == []
    types = json.loads((generated / "schema.json").read_text())["modules"]["NativeEdgekit"]["aliasMap"]
    literals = dict(re.findall(r"func (\w+)\(.*\) -> \[String: Any\] \{\n((?:.*\n)*?)\}\n", SWIFT.read_text()))
    for function, record in (("info", "NativeInfo"), ("result", "NativeResult"), ("record", "NativeCase")):
        fields = re.findall(r'^ +"(\w+)":', literals[function], re.MULTILINE)
        assert fields == [field["name"] for field in types[record]["properties"]], record


def test_objective_c_passes_each_call_of_the_interface_to_swift(generated: Path) -> None:
    header = (generated / "EdgekitSpec" / "EdgekitSpec.h").read_text()
    protocol = re.search(r"@protocol NativeEdgekitSpec .*?@end", header, re.DOTALL)
    assert protocol is not None
    shim = (MODULE / "ios" / "RCTEdgekit.mm").read_text()
    expected = _selectors(protocol[0], ";")
    assert len(expected) == 4
    assert _selectors(shim, r" \{") == expected | {"getTurboModule:"}
    calls = re.findall(r"\[_module (.*)\];", shim)
    assert {"".join(re.findall(r"\w+:", call)) for call in calls} == expected
    assert set(re.findall(r"@objc\(([\w:]+:)\)", SWIFT.read_text())) == expected


def _selectors(text: str, end: str) -> set[str]:
    """The selectors of Objective-C's methods, without those of classes."""
    methods = re.findall(rf"^- \([^)]*(?:<[^>]*>)?\)(.*?){end}$", text, re.MULTILINE | re.DOTALL)
    return {"".join(re.findall(r"(\w+:)\(", method)) for method in methods} - {""}


def test_the_build_takes_the_versions_of_the_library() -> None:
    build = (MODULE / "android" / "build.gradle").read_text()
    catalog = tomllib.loads((ANDROID / "gradle" / "libs.versions.toml").read_text())
    modules = {entry["module"]: catalog["versions"][entry["version"]["ref"]] for entry in catalog["libraries"].values()}
    named = dict(re.findall(r'"([\w.-]+:[\w.-]+):([\d.]+)"', build))
    assert len(named) == 7
    assert named == {name: modules[name] for name in named}


@pytest.mark.nightly
def test_the_package_has_all_that_an_app_needs(tmp_path: Path) -> None:
    printed(MODULE, "npm", "run", "package")
    printed(MODULE, "npm", "pack", "--silent", "--pack-destination", str(tmp_path))
    with tarfile.open(next(tmp_path.glob("*.tgz"))) as packed:
        packed.extractall(tmp_path, filter="data")
    package = tmp_path / "package"
    for path in ("lib/index.js", "lib/index.d.ts", "src/NativeEdgekit.ts", "edgekit-react-native.podspec"):
        assert (package / path).is_file(), path
    for library, sources, ending in (
        (ANDROID / "edgekit" / "src" / "main", "native/android/edgekit/src/main", "kt"),
        (ANDROID.parent / "apple" / "Sources", "native/apple/Sources", "swift"),
    ):
        own = {p.relative_to(library) for p in library.rglob(f"*.{ending}")}
        assert own == {p.relative_to(package / sources) for p in (package / sources).rglob(f"*.{ending}")}
    named = re.findall(r'"\$mobile/([\w/.-]+)"', (package / "android" / "build.gradle").read_text())
    assert len(named) == 3
    assert all((package / "native" / path).exists() for path in named)
