"""Run in a copy of the packages: appends a comment to each module in turn and prints whose keys change.

    python edited.py COPY

Reading and walking the source of every module again for each edit would take minutes. So what was parsed and walked is
kept, by the content of the file: the edited module is parsed and walked again, the others are as they were. `CHECKED`
modules are edited once more with nothing kept, and must give the same.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from edgekit import registry
from edgekit.pipeline import evaluate_step, export_step
from edgekit.storage import code

CHECKED = ("edgekit_targets._site", "edgekit.model.graph")
EDIT = b"\n#"

parse, walk = code._parsed.__wrapped__, code._Ours.reach
parsed: dict[str, Any] = {}
walked: dict[tuple[object, ...], tuple[tuple[str, str], ...]] = {}


def kept_parse(module: str) -> Any:
    if module not in parsed:
        parsed[module] = parse(module)
    return parsed[module]


def kept_walk(self: Any, source: Any, name: str) -> Iterator[tuple[str, str]]:
    key = (self, source.sha256, name)
    if key not in walked:
        walked[key] = tuple(walk(self, source, name))
    return iter(walked[key])


def main(copy: Path) -> None:
    files = {name_of(copy, path): path for path in sorted(copy.rglob("*.py"))}
    code._parsed = kept_parse  # type: ignore[assignment]
    code._Ours.reach = kept_walk  # type: ignore[method-assign]
    loaded, broken = registry.loadable()
    targets = {name: loaded[name] for name, entry in registry.available().items() if entry.origin == "edgekit"}
    before = keys(targets)
    changed = {module: edited(module, path, targets, before) for module, path in files.items()}
    for module in CHECKED:
        walked.clear()
        parsed.clear()
        assert edited(module, files[module], targets, before) == changed[module], module
    found = {name: code.joined(codes(target)[kind == "judge"]) for name, kind, target in named(targets)}
    reach = {name: sorted(one.modules) for name, one in found.items()}
    libraries = {name: dict(one.libraries) for name, one in found.items()}
    print(json.dumps({"reach": reach, "libraries": libraries, "changed": changed, "broken": broken}))


def name_of(copy: Path, path: Path) -> str:
    parts = path.relative_to(copy).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def edited(module: str, path: Path, targets: dict[str, Any], before: dict[str, str]) -> list[str]:
    """The keys that an edit of one module changes; the file is put back."""
    content = path.read_bytes()
    try:
        path.write_bytes(content + EDIT)
        parsed.pop(module, None)
        after = keys(targets)
    finally:
        path.write_bytes(content)
        parsed.pop(module, None)
    return sorted(name for name in before if before[name] != after[name])


def keys(targets: dict[str, Any]) -> dict[str, str]:
    """The part of each artifact's key, and of each verdict's, that follows the code: as the pipeline computes it."""
    code._reached.cache_clear()
    made = SimpleNamespace(options={})
    return {
        name: evaluate_step._code(target, made) if kind == "judge" else export_step._code(target).digest  # type: ignore[arg-type]
        for name, kind, target in named(targets)
    }


def codes(target: Any) -> tuple[list[code.ReachedCode], list[code.ReachedCode]]:
    return [export_step._code(target)], [code.code_of(evaluate_step.evaluate), code.code_of(target.load)]


def named(targets: dict[str, Any]) -> Iterator[tuple[str, str, Any]]:
    for name, target in targets.items():
        for kind in ("export", "judge"):
            yield f"{kind} {name}", kind, target


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve())
