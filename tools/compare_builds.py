"""Compares the artifacts of two builds byte by byte: `python tools/compare_builds.py BUILD_A BUILD_B`.

A build is a model's folder, for example build/arr-coc-tiny. Every file that a manifest names is compared with its
counterpart and with the hash that its manifest gives it, then the manifests themselves. The tool reads JSON and bytes
and imports nothing of edgekit, so that it can compare builds of any two versions.

Exit codes: 0 identical, 1 different, 2 a folder that is no build.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

MANIFEST = "manifest.json"
CHUNK = 1 << 20

MAY_DIFFER: Mapping[str, str] = {
    "export.key": "made of hashes of edgekit's code, which changes where the artifact does not",
    "export.tools": "versions of edgekit and of the libraries",
    "export.model_sha256": "hash of the model folder, which names the code of the module",
    "export.source.sha256": "likewise where the source is the model; another artifact is compared by its own files",
    "notes": "sentences for people",
    "verdicts[].reason": "sentences for people",
    "results": "what was measured, with times",
    "content_sha256": "hash of the manifest with all of these",
}
"""Fields of a manifest that are not compared, and why; of a list `[]` means every entry."""


class NoBuildError(Exception):
    """A folder is no build; the message is one sentence."""


@dataclass(frozen=True)
class Row:
    """One target: how many files were compared, and the first difference; empty where there is none."""

    target: str
    files: int
    difference: str


def main() -> int:
    """Compare, print the table, return the exit code."""
    parser = argparse.ArgumentParser(description="Compare the artifacts of two builds byte by byte.")
    parser.add_argument("one", type=Path, metavar="BUILD_A")
    parser.add_argument("other", type=Path, metavar="BUILD_B")
    given = parser.parse_args()
    try:
        rows = compare(given.one, given.other)
    except NoBuildError as error:
        print(f"compare_builds: {error}", file=sys.stderr)
        return 2
    width = max(len(row.target) for row in rows)
    for row in rows:
        print(f"{row.target:<{width}}  {row.files:>4} files  {row.difference or 'identical'}")
    different = sum(bool(row.difference) for row in rows)
    print(f"{len(rows) - different} of {len(rows)} artifacts are identical; not compared: {', '.join(MAY_DIFFER)}")
    return 1 if different else 0


def compare(one: Path, other: Path) -> tuple[Row, ...]:
    """One row for each target that either build has.

    Raises:
        NoBuildError: A folder has no artifact.
    """
    targets = sorted(_targets(one) | _targets(other))
    return tuple(_row(one / target, other / target) for target in targets)


def _targets(build: Path) -> set[str]:
    found = {path.parent.name for path in build.glob(f"*/{MANIFEST}")}
    if not found:
        raise NoBuildError(f"'{build}' has no artifact: name a model's build folder, as build/arr-coc-tiny")
    return found


def _row(one: Path, other: Path) -> Row:
    for folder in (one, other):
        if not (folder / MANIFEST).is_file():
            return Row(one.name, 0, f"missing in '{folder.parent}'")
    try:
        first, second = (json.loads((folder / MANIFEST).read_text()) for folder in (one, other))
        named = [{str(file["path"]): str(file["sha256"]) for file in made["files"]} for made in (first, second)]
    except (ValueError, KeyError, TypeError) as error:
        return Row(one.name, 0, f"a manifest is damaged ({type(error).__name__}: {error})")
    paths = sorted(named[0].keys() | named[1].keys())
    differences = (_file(path, (one, named[0]), (other, named[1])) for path in paths)
    found = next((text for text in differences if text), "") or next(_fields("", first, second), "")
    return Row(one.name, len(paths), found)


def _file(path: str, *sides: tuple[Path, Mapping[str, str]]) -> str:
    """The first difference of one file; empty where there is none."""
    for folder, named in sides:
        if path not in named:
            return f"{path}: not named in '{folder / MANIFEST}'"
        if not (folder / path).is_file():
            return f"{path}: missing in '{folder}'"
        with (folder / path).open("rb") as stream:
            if hashlib.file_digest(stream, "sha256").hexdigest() != named[path]:
                return f"{path}: not what '{folder / MANIFEST}' names"
    one, other = (folder / path for folder, _ in sides)
    at = _first_byte(one, other)
    sizes = f"{one.stat().st_size} and {other.stat().st_size} bytes"
    return "" if at is None else f"{path}: differs from byte {at} on ({sizes})"


def _first_byte(one: Path, other: Path) -> int | None:
    """Offset of the first byte that differs; None where all are equal."""
    with one.open("rb") as left, other.open("rb") as right:
        start = 0
        while True:
            a, b = left.read(CHUNK), right.read(CHUNK)
            if a != b:
                shared = zip(a, b, strict=False)
                return start + next((i for i, (x, y) in enumerate(shared) if x != y), min(len(a), len(b)))
            if not a:
                return None
            start += len(a)


def _fields(name: str, one: Any, other: Any) -> Iterator[str]:
    """What differs between two manifests, one text a field, without MAY_DIFFER."""
    if isinstance(one, dict) and isinstance(other, dict):
        for key in sorted(one.keys() | other.keys()):
            inner = f"{name}.{key}" if name else key
            if _generic(inner) not in MAY_DIFFER:
                yield from _fields(inner, one.get(key), other.get(key))
    elif isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        for number, pair in enumerate(zip(one, other, strict=True)):
            yield from _fields(f"{name}[{number}]", *pair)
    elif one != other:
        yield f"manifest: {name} is {json.dumps(one)[:80]} and {json.dumps(other)[:80]}"


def _generic(name: str) -> str:
    """`verdicts[3].reason` -> `verdicts[].reason`."""
    return "".join(part if i == 0 else "[" + part[part.index("]") :] for i, part in enumerate(name.split("[")))


if __name__ == "__main__":
    sys.exit(main())
