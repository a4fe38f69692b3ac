"""Gradle, XML and version catalog: what can be checked of them without Gradle."""

from __future__ import annotations

import json
import re
import tomllib
import xml.etree.ElementTree as ET
from pathlib import Path

from edgekit.storage import environment

ANDROID = Path(__file__).parents[2] / "mobile" / "android"
SCRIPTS = sorted(p for p in ANDROID.rglob("*.gradle.kts") if "node_modules" not in p.parts)
XML = sorted(p for p in ANDROID.rglob("*.xml") if "node_modules" not in p.parts)
NAMESPACE = "{http://schemas.android.com/apk/res/android}"


def test_every_alias_is_in_the_version_catalog_and_every_entry_is_used() -> None:
    catalog = tomllib.loads((ANDROID / "gradle" / "libs.versions.toml").read_text())
    declared = {f"libs.{name.replace('-', '.')}" for name in catalog["libraries"]}
    declared |= {f"libs.plugins.{name.replace('-', '.')}" for name in catalog["plugins"]}
    used = {match for path in SCRIPTS for match in re.findall(r"\blibs\.[\w.]+", path.read_text())}
    assert used == declared
    versions = {entry["version"]["ref"] for part in ("libraries", "plugins") for entry in catalog[part].values()}
    assert versions == set(catalog["versions"])


def test_an_app_has_the_litert_that_judged_the_artifact() -> None:
    catalog = tomllib.loads((ANDROID / "gradle" / "libs.versions.toml").read_text())
    assert f"ai-edge-litert=={catalog['versions']['litert']} " in environment.lock(environment.LITERT).read_text()


def test_brackets_of_build_scripts_match() -> None:
    assert len(SCRIPTS) == 6
    pairs = {")": "(", "]": "[", "}": "{"}
    for path in SCRIPTS:
        text = re.sub(r"//.*|/\*.*?\*/", "", re.sub(r'"(?:[^"\\]|\\.)*"', '""', path.read_text()))
        opened: list[str] = []
        for c in text:
            if c in "([{":
                opened.append(c)
            elif c in pairs:
                assert opened.pop() == pairs[c], path
        assert not opened, path


def test_modules_that_are_included_exist() -> None:
    included = re.findall(r'":(\w+)"', (ANDROID / "settings.gradle.kts").read_text())
    assert included == ["edgekit", "sample", "bench", "mnn"]
    for module in included:
        assert (ANDROID / module / "build.gradle.kts").is_file()
        assert module == "mnn" or (ANDROID / module / "src" / "main" / "AndroidManifest.xml").is_file()


def test_xml_is_well_formed_and_resources_that_are_named_exist() -> None:
    trees = {path: ET.parse(path).getroot() for path in XML}  # noqa: S314 - our own files
    resources = {f"@{e.tag}/{e.get('name')}" for p, t in trees.items() if p.parent.name == "values" for e in t}
    ids = {v for t in trees.values() for e in t.iter() for v in e.attrib.values() if v.startswith("@+id/")}
    for path, tree in trees.items():
        for element in tree.iter():
            for value in element.attrib.values():
                if value.startswith(("@string/", "@style/")):
                    assert value in resources, f"{path.name}: {value}"
    code = (ANDROID / "sample/src/main/kotlin/org/edgekit/sample/MainActivity.kt").read_text()
    assert {f"@+id/{name}" for name in re.findall(r"R\.id\.(\w+)", code)} == ids
    assert {f"@string/{name}" for name in re.findall(r"R\.string\.(\w+)", code)} <= resources
    activity = trees[ANDROID / "sample/src/main/AndroidManifest.xml"].find("application/activity")
    assert activity is not None
    assert activity.get(f"{NAMESPACE}name") == ".MainActivity"


def test_the_lock_file_pins_the_compiler_by_hash_and_names_no_host() -> None:
    lock = json.loads((ANDROID / "check" / "package-lock.json").read_text())
    compiler = lock["packages"]["node_modules/kotlin-compiler"]
    assert compiler["version"] == "2.4.20"
    assert compiler["integrity"].startswith("sha512-")
    assert "://" not in (ANDROID / "check" / "package-lock.json").read_text()


def test_the_jars_of_the_check_are_pinned_by_hash() -> None:
    lines = (ANDROID / "check" / "requirements.txt").read_text().splitlines()
    required = [line for line in lines if not line.startswith("#")]
    assert len(required) == 1
    assert re.fullmatch(r"[\w-]+==[\d.]+ --hash=sha256:[0-9a-f]{64}", required[0])
