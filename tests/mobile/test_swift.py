"""Swift parses cleanly, and the Xcode project and property lists are well-formed. There is no Swift compiler here."""

from __future__ import annotations

import plistlib
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from edgekit_apps import assets as apps
from tests.plugins.apps import toy

APPLE = Path(__file__).parents[2] / "mobile" / "apple"
SOURCES = sorted(p for p in APPLE.rglob("*.swift") if ".build" not in p.parts and "Sample/Edgekit" not in p.as_posix())
FREE = {"Foundation", "CryptoKit"}


@pytest.mark.parametrize("path", SOURCES, ids=lambda p: p.name)
def test_swift_parses_without_an_error(path: Path) -> None:
    assert errors(path.read_bytes()) == []


def test_the_parser_sees_mistakes() -> None:
    whole = (APPLE / "Sources" / "Edgekit" / "Runner.swift").read_bytes()
    assert errors(whole.replace(b"guard ", b"guard guard (", 1))
    assert errors(whole.rstrip().removesuffix(b"}"))


def test_sdk_free_files_import_no_device_sdk() -> None:
    files = list((APPLE / "Sources" / "Edgekit").glob("*.swift"))
    assert len(files) > 8
    for path in files:
        assert set(re.findall(r"^import (\w+)", path.read_text(), re.MULTILINE)) <= FREE, path.name


def test_every_runner_is_an_actor_and_no_photograph_loses_its_orientation() -> None:
    text = "\n".join(path.read_text() for path in SOURCES)
    assert set(re.findall(r"\b(\w+) \w+Runner: Runner\b", text)) == {"actor"}
    assert "public protocol Runner: Actor" in text
    assert not re.search(r"UIImage\(.*\.cgImage", text)


def test_the_privacy_manifest_says_that_nothing_is_collected() -> None:
    nothing = {
        "NSPrivacyTracking": False,
        "NSPrivacyTrackingDomains": [],
        "NSPrivacyCollectedDataTypes": [],
        "NSPrivacyAccessedAPITypes": [],
    }
    for library in ("EdgekitCoreML", "EdgekitCoreAI"):
        assert plistlib.loads((APPLE / "Sources" / library / "PrivacyInfo.xcprivacy").read_bytes()) == nothing
    assert 'copy("PrivacyInfo.xcprivacy")' in (APPLE / "Package.swift").read_text()


def test_the_xcode_project_is_well_formed() -> None:
    project = openstep((APPLE / "Sample" / "EdgekitSample.xcodeproj" / "project.pbxproj").read_text())
    objects = project["objects"]
    assert project["rootObject"] in objects
    for name, item in objects.items():
        for value in _texts(item):
            assert not re.fullmatch(r"ED6E[0-9A-F]{20}", value) or value in objects, f"{name} names {value}"
    groups = [o for o in objects.values() if o["isa"] == "PBXFileSystemSynchronizedRootGroup"]
    assert {g["path"] for g in groups} == {"Sources", "Edgekit"}
    assert ["edgekit"] in [g.get("explicitFolders") for g in groups]


def test_the_sample_finds_what_assets_wrote(tmp_path: Path) -> None:
    sample = Path(shutil.copytree(APPLE / "Sample", tmp_path / "Sample", ignore=shutil.ignore_patterns("Edgekit")))
    apps.write_assets(
        "ios", toy.build(tmp_path / "build" / "arr-coc-tiny", name="arr-coc-tiny"), sample, trust_build=True
    )
    made = (sample / "Edgekit" / "ArrCocTiny.swift").read_text()
    named = {n for p in (sample / "Sources").glob("*.swift") for n in re.findall(r"ArrCocTiny\.(\w+)", p.read_text())}
    assert named == {"Models", "open"}
    assert all(re.search(rf"\b(?:enum|func|let) {name}\b", made) for name in named)
    assert errors(made.encode()) == []
    assert (sample / "Edgekit" / "edgekit" / "arr-coc-tiny" / "bundle.json").is_file()


def errors(source: bytes) -> list[str]:
    """Where tree-sitter's Swift grammar finds no sense."""
    swift = pytest.importorskip("tree_sitter_swift", reason="no Swift grammar: pip install -e '.[test]'")
    tree_sitter = pytest.importorskip("tree_sitter", reason="no parser: pip install -e '.[test]'")
    tree = tree_sitter.Parser(tree_sitter.Language(swift.language())).parse(source)

    def walk(node: object) -> Iterator[str]:
        if node.type == "ERROR" or node.is_missing:  # type: ignore[attr-defined]  # tree-sitter's node
            yield f"line {node.start_point[0] + 1}"  # type: ignore[attr-defined]
        for child in node.children:  # type: ignore[attr-defined]
            yield from walk(child)

    return list(walk(tree.root_node))


def openstep(text: str) -> dict[str, Any]:
    """Parse an OpenStep property list: what Xcode's project files are, and plistlib does not read."""
    text = re.sub(r"/\*.*?\*/|^//.*?$", "", text, flags=re.DOTALL | re.MULTILINE)
    tokens: list[str] = re.findall(r'"(?:[^"\\]|\\.)*"|[{}();=,]|[\w$./:-]+|\S', text)
    position = 0

    def take(wanted: str = "") -> str:
        nonlocal position
        word = tokens[position]
        position += 1
        assert wanted in ("", word), f"'{wanted}' expected, not '{word}' (token {position})"
        return word

    def value() -> Any:
        word = take()
        if word == "{":
            table: dict[str, Any] = {}
            while tokens[position] != "}":
                key = take().strip('"')
                take("=")
                table[key] = value()
                take(";")
            take("}")
            return table
        if word == "(":
            items: list[Any] = []
            while tokens[position] != ")":
                items.append(value())
                take(",")
            take(")")
            return items
        assert re.fullmatch(r'"(?:[^"\\]|\\.)*"|[\w$./:-]+', word), word
        return word.strip('"')

    whole = value()
    assert position == len(tokens)
    assert isinstance(whole, dict)
    return whole


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    else:
        for item in value.values() if isinstance(value, dict) else value:
            yield from _texts(item)
