"""Run in a copy of the packages: which modules' functions really run while the small model is exported and answers.

    python executed.py COPY BUILD instrument    rewrites the copy: every function says that it was called
    python executed.py COPY BUILD               exports to every installed target, runs each, prints the modules

It knows nothing of imports: what the analysis of the source finds must hold all of this.
"""

from __future__ import annotations

import ast
import json
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

PACKAGES = ("edgekit", "edgekit_targets", "mil_interpreter")
MODELS = ("edgekit/testing", "edgekit/arrcoc")  # data here: a model folder's hash holds their code
SMALL = "edgekit.testing:small_model"
OPTIONS = {"onnx-int8-static": {"search": "none", "method": "percentile"}}

seen: set[str] = set()
recording = False


def hit(module: str) -> None:
    """Called by every function of the copy. What runs while one of our modules is imported does not count."""
    if not recording or module in seen:
        return
    frame: FrameType | None = sys._getframe(2)
    while frame is not None:
        if frame.f_code.co_name == "<module>" and str(frame.f_globals.get("__name__", "")).startswith(PACKAGES):
            return
        frame = frame.f_back
    seen.add(module)


class Instrument(ast.NodeTransformer):
    """Puts a call of `hit` first in every function but `forward`, which belongs to modules that are captured.

    In a script that another interpreter runs there is nobody to tell.
    """

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        self.generic_visit(node)
        if node.name != "forward":
            first = 1 if ast.get_docstring(node) is not None else 0
            told = "getattr(__import__('sys').modules.get('executed'), 'hit', str)(__name__)"
            call = ast.parse(told).body[0]
            node.body.insert(first, call)
        return node


def instrument(copy: Path) -> None:
    for package in PACKAGES:
        for path in (copy / package).rglob("*.py"):
            if not path.relative_to(copy).as_posix().startswith(MODELS):
                tree = Instrument().visit(ast.parse(path.read_bytes()))
                path.write_text(ast.unparse(ast.fix_missing_locations(tree)))


def recorded(call: Callable[[], Any]) -> tuple[Any, list[str]]:
    """What a call gives, and the modules whose functions ran meanwhile."""
    global recording
    seen.clear()
    recording = True
    try:
        return call(), sorted(seen)
    finally:
        recording = False


def export_all(root: Path) -> dict[str, Any]:
    from edgekit import registry
    from edgekit.artifact.store import commit, read_artifact
    from edgekit.model.folder import model_digest
    from edgekit.model.graph import capture
    from edgekit.model.program import save_program
    from edgekit.model.source import resolve_model, save_model
    from edgekit.reference.record import record_reference
    from edgekit.storage.files import staging
    from edgekit.target import Job
    from tests.targets.phone_models import described

    spec = resolve_model(SMALL)
    save_model(spec, root / "model")
    record_reference(spec, root / "reference")
    program, captured = recorded(lambda: capture(spec))
    save_program(program, root / "program", model_digest(root / "model"))
    built_in = [name for name, entry in registry.available().items() if entry.origin == "edgekit"]
    loaded = {name: registry.find(name) for name in built_in}
    targets = {n: t for n, t in loaded.items() if not registry.missing(t) and not t.unavailable_reason()}
    found: dict[str, Any] = {"export": {}, "load": {}, "failed": {}, "captured": captured}
    for name in registry.ordered(targets, targets):
        target, source = targets[name], root / targets[name].source
        entry = source / read_artifact(source).entry if target.source in targets else source
        job = Job(
            model=root / "model",
            reference=root / "reference",
            entry=entry,
            dynamic=tuple(spec.axes),
            artifacts={n: root / n for n in target.optional_sources if (root / n).is_dir()},
            options=registry.parsed_options(name, target, OPTIONS.get(name, {})),
            cache=root / "cache" / name,
            progress=lambda done, text: None,
        )
        try:
            with staging(root / name) as staged:
                exported, found["export"][name] = recorded(lambda: target.export(source, staged, job))  # noqa: B023
                commit(staged, described(spec, name, exported))
            found["load"][name] = recorded(lambda: answer(target, root / name, spec))[1]  # noqa: B023
        except Exception:
            found["failed"][name] = traceback.format_exc()
    return found


def answer(target: Any, artifact: Path, spec: Any) -> None:
    runtime = target.load(artifact, target.places[0])
    runtime.run(spec.random(1, {"batch": 1}))
    runtime.close()


if __name__ == "__main__":
    sys.modules["executed"] = sys.modules["__main__"]
    if sys.argv[3:] == ["instrument"]:
        instrument(Path(sys.argv[1]))
    else:
        print(json.dumps(export_all(Path(sys.argv[2]))))
