"""Hostile JSON: imported results, manifests, and the config.json of a model folder."""

from __future__ import annotations

import json
from collections.abc import Iterator

from edgekit.storage.verified_io import seal_record

Files = Iterator[tuple[str, bytes]]
CALLED = (
    "builtins.eval",
    "builtins.exec",
    "os.system",
    "subprocess.getoutput",
    "importlib.import_module",
    "builtins.open",
    "runpy.run_path",
    "webbrowser.open",
    "shutil.rmtree",
    "pickle.loads",
    "builtins.getattr",
    "os.remove",
)


def results() -> Files:
    from tests.core.report.test_imports import BAD

    yield from ((".json", content.encode()) for content in BAD.values())


TEXTS = (
    "",
    "{",
    "[]",
    "null",
    "1",
    '"a"',
    "NaN",
    "[" * 100_000,
    '{"a": ' * 50_000,
    "\0",
    "\ud7ff" * 9,
    '{"files": 3}',
    "{}",
)


def manifests() -> Files:
    yield from ((".json", text.encode()) for text in TEXTS)
    sha = "0" * 64
    whole = {
        "schema_version": 1,
        "name": "a",
        "target": "onnx",
        "precision": "fp32",
        "entry": "model.onnx",
        "key": sha,
        "source": {"name": "model", "sha256": sha},
        "model_sha256": sha,
        "options": {},
        "inputs": [],
        "outputs": [],
        "axes": {},
        "tools": {},
        "files": [],
    }
    names = (
        "/etc/passwd",
        "../../etc/passwd",
        "a/../../b",
        "a\0b",
        "a\\b",
        "c:d",
        "",
        ".",
        "gone",
        "/dev/zero",
        "/proc/self/mem",
    )
    for name in names:
        for size in (1, 1 << 62):
            yield ".json", json.dumps({**whole, "files": [{"path": name, "size": size, "sha256": sha}]}).encode()
    wrong: list[dict[str, object]] = [
        {"files": None},
        {"axes": []},
        {"tools": 1},
        {"extra": 1},
        {"files": [{"path": "a", "size": -1, "sha256": sha}]},
    ]
    for changes in wrong:
        yield ".json", json.dumps({**whole, **changes}).encode()


def configs() -> Files:
    yield from ((".json", text.encode()) for text in TEXTS)
    for name in (*CALLED, "antigravity.x", "this.x", "edgekit.cli.main.main", "..", "a b", ""):
        module, _, function = name.rpartition(".")
        config = {"factory": f"{module}:{function}", "files": {}, "name": "a", "licence": "", "author": ""}
        yield ".json", seal_record(config).encode()
