"""Keys that see the code: which edit of which module makes which artifacts anew.

Every module of a copy of the packages is edited, one at a time, and the keys are computed as the pipeline computes them
(`edited.py`). What the analysis of the source says is held against two things that know nothing of it: the modules
whose functions really ran while the small model was exported and answered (`executed.py`), and tables written by hand.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from edgekit.storage.code import ReachedCode, code_of, joined
from edgekit_targets import onnx, onnx_fp16

ROOT, HERE = Path(__file__).parents[2], Path(__file__).parent
PACKAGES = (ROOT / "edgekit", ROOT / "targets" / "edgekit_targets", ROOT / "mil_interpreter")

EXPORTS_WITH = {
    "edgekit_targets._site": {"web"},
    "edgekit_targets._coreml": {"coreml"},
    "edgekit_targets._executorch": {"executorch", "executorch-int8", "litert"},
    "edgekit_targets._torchscript.compile": {"torchscript", "torch-mobile"},
    "edgekit_targets.onnx": {"onnx"},
    "mil_interpreter.package": {"coreml", "coreml-int8"},
    "edgekit.quantization.calibration": {
        "onnx-int8-static",
        "onnx-int8-dynamic",
        "executorch-int8",
        "openvino-int8",
    },
    "edgekit.quantization.search": {"onnx-int8-static", "openvino-int8"},
    "edgekit.quantization.trials": {"onnx-int8-static"},
    "edgekit.onnxgraph.gemm": {"onnx"},
    "edgekit.onnxgraph.qdq": {"onnx-int8-static", "onnx-int8-dynamic", "openvino-int8"},
    "edgekit.onnxgraph.dynamic": {"onnx-int8-dynamic"},
    "edgekit.onnxgraph.fixed_sizes": {"onnx-buckets"},
    "edgekit.quantization.retreat": {"onnx-int8-static", "openvino-int8"},
    "edgekit.reference.golden": {"web"},
    "edgekit.reference.store": {"web"},
    "edgekit.serving.static": {"web"},
}
"""Module -> the targets whose artifacts it makes; all others keep theirs."""
EXPORT_NEVER = (
    "edgekit.report.", "edgekit.cli.", "edgekit.apps.", "edgekit.testing", "edgekit.analysis.", "edgekit.pipeline.",
    "edgekit.api", "edgekit.registry", "edgekit.arrcoc", "edgekit.reference.record", "edgekit.runtime.browser",
    "edgekit.runtime.eager", "edgekit.runtime.executorch", "edgekit.runtime.torchscript",
)  # fmt: skip
"""What makes no artifact, or is hashed with the model: an edit makes none anew."""
JUDGE_ALWAYS = (
    "edgekit.judge.metrics", "edgekit.judge.verdict", "edgekit.judge.tolerance", "edgekit.judge.latency",
    "edgekit.pipeline.worker", "edgekit.pipeline.compare_step", "edgekit.pipeline.evaluate_step",
    "edgekit.reference.batches", "edgekit.reference.store", "edgekit.runtime.eager", "edgekit.artifact.fact",
    "edgekit.artifact.metric", "edgekit.model.spec",
)  # fmt: skip
"""What judges every artifact: an edit judges all again."""
JUDGE_NEVER = (
    "edgekit.report.", "edgekit.cli.", "edgekit.apps.", "edgekit.testing", "edgekit.analysis.", "edgekit.quantization.",
    "edgekit.onnxgraph.", "edgekit.api", "edgekit.arrcoc", "edgekit_targets._site", "edgekit_targets._coreml",
)  # fmt: skip


def ran(script: str, copy: Path, *arguments: str) -> dict[str, Any]:
    """The last line that a script printed in a process that sees the copy first."""
    paths = {"PYTHONPATH": os.pathsep.join([str(copy), str(ROOT)])}
    command = [sys.executable, "-W", "ignore", str(HERE / script), str(copy), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ | paths, check=False, cwd=copy)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1]) if done.stdout else {}
    return found


def copied(folder: Path) -> Path:
    for package in PACKAGES:
        shutil.copytree(package, folder / package.name, ignore=shutil.ignore_patterns("__pycache__", "checkpoints"))
    return folder


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return ran("edited.py", copied(tmp_path_factory.mktemp("edited")))


@pytest.fixture(scope="module")
def executed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    copy, build = copied(tmp_path_factory.mktemp("executed")), tmp_path_factory.mktemp("build")
    ran("executed.py", copy, str(build), "instrument")
    return ran("executed.py", copy, str(build))


def targets(found: dict[str, Any]) -> set[str]:
    return {name.partition(" ")[2] for name in found["reach"]}


def changed(found: dict[str, Any], module: str, kind: str) -> set[str]:
    """The targets whose keys of a kind change with a module."""
    return {name.partition(" ")[2] for name in found["changed"][module] if name.startswith(f"{kind} ")}


def test_a_byte_of_each_module_changes_exactly_the_keys_that_reach_it(found: dict[str, Any]) -> None:
    assert found["broken"] == {}
    reached = {module for modules in found["reach"].values() for module in modules}
    assert reached <= set(found["changed"])
    for module, keys in found["changed"].items():
        assert set(keys) == {name for name, modules in found["reach"].items() if module in modules}, module


def test_every_module_of_the_packages_was_edited(found: dict[str, Any]) -> None:
    count = sum(len(list(package.rglob("*.py"))) for package in PACKAGES)
    assert len(found["changed"]) == count > 150


@pytest.mark.parametrize("module", EXPORTS_WITH)
def test_an_edit_makes_these_artifacts_anew_and_no_others(found: dict[str, Any], module: str) -> None:
    assert changed(found, module, "export") == EXPORTS_WITH[module]


def test_capturing_makes_what_is_made_from_the_program_anew(found: dict[str, Any]) -> None:
    assert {"onnx", "executorch", "executorch-int8"} <= changed(found, "edgekit.model.shapes", "export")
    assert not {"onnx-fp16", "web"} & changed(found, "edgekit.model.shapes", "export")


def test_an_edit_of_these_makes_no_artifact_anew(found: dict[str, Any]) -> None:
    never = [module for module in found["changed"] if module.startswith(EXPORT_NEVER)]
    assert len(never) > 50
    for module in never:
        assert changed(found, module, "export") == set(), module
    judge = [module for module in found["changed"] if module.startswith("edgekit.judge.")]
    assert "edgekit.judge.verdict" in judge
    searching = {"onnx-int8-static", "onnx-int8-dynamic", "openvino-int8"}
    for module in judge:  # a search asks the judge; others name its limits, and read what the reference keeps
        made = changed(found, module, "export")
        assert made <= searching or module in ("edgekit.judge.tolerance", "edgekit.judge.sketch"), module
    assert changed(found, "edgekit.judge.sketch", "export") <= {*searching, "web"}
    assert not {"onnx", "onnx-fp16"} & changed(found, "edgekit.judge.tolerance", "export")


def test_a_target_is_made_anew_by_its_own_file(found: dict[str, Any]) -> None:
    for target in targets(found):
        own = f"edgekit_targets.{target.replace('-', '_')}"
        assert changed(found, own, "export") == changed(found, own, "judge") == {target}


@pytest.mark.parametrize("module", JUDGE_ALWAYS)
def test_an_edit_of_the_judge_judges_all_again(found: dict[str, Any], module: str) -> None:
    assert changed(found, module, "judge") == targets(found)


def test_an_edit_of_these_judges_nothing_again(found: dict[str, Any]) -> None:
    for module in (module for module in found["changed"] if module.startswith(JUDGE_NEVER)):
        assert changed(found, module, "judge") == set(), module


@pytest.mark.parametrize(
    ("module", "judged"),
    [
        ("edgekit.runtime.ort", {"onnx", "onnx-buckets", "onnx-fp16", "onnx-int8-dynamic", "onnx-int8-static"}),
        ("edgekit.runtime.buckets", {"onnx-buckets"}),
        ("edgekit.runtime.browser", {"web", "litert", "litert-int8"}),
        ("edgekit.runtime.executorch", {"executorch", "executorch-int8"}),
        ("edgekit.runtime.torchscript", {"torchscript", "torch-mobile"}),
        ("mil_interpreter.interpreter", {"coreml", "coreml-int8"}),
        ("mil_interpreter.operators.gather", {"coreml", "coreml-int8"}),
        ("mil_interpreter.operators.constexpr", {"coreml", "coreml-int8"}),
    ],
)
def test_an_edit_of_a_runtime_judges_what_it_runs(found: dict[str, Any], module: str, judged: set[str]) -> None:
    assert changed(found, module, "judge") == judged


def test_what_really_ran_is_in_the_key(found: dict[str, Any], executed: dict[str, Any]) -> None:
    assert executed["failed"] == {}
    assert {"onnx", "onnx-fp16", "onnx-int8-dynamic", "onnx-int8-static", "torchscript"} <= set(executed["export"])
    for kind, name in (("export", "export"), ("load", "judge")):
        for target, modules in executed[kind].items():
            own = f"edgekit_targets.{target.replace('-', '_')}"
            assert own in modules
            missed = set(modules) - set(found["reach"][f"{name} {target}"])
            assert not missed, (name, target)
    assert "edgekit.onnxgraph.gemm" in executed["export"]["onnx"]
    assert "edgekit.quantization.calibration" in executed["export"]["onnx-int8-static"]


def test_what_ran_while_capturing_is_in_the_key_of_what_is_made_from_the_program(
    found: dict[str, Any], executed: dict[str, Any]
) -> None:
    assert "edgekit.model.graph" in executed["captured"]
    for target in ("onnx", "executorch", "executorch-int8"):
        assert set(executed["captured"]) <= set(found["reach"][f"export {target}"])


def test_libraries_are_recorded_with_their_versions(found: dict[str, Any]) -> None:
    from importlib.metadata import version

    for target, names in (
        ("onnx", ("onnx", "onnxscript", "onnx-ir", "torch", "numpy")),
        ("onnx-fp16", ("onnx", "numpy")),
        ("onnx-int8-static", ("onnx", "onnxruntime")),
        ("coreml", ("coremltools", "torch")),
        ("executorch-int8", ("executorch", "torchao", "torch")),
        ("web", ("onnxruntime", "safetensors")),
    ):
        libraries = found["libraries"][f"export {target}"]
        for name in names:
            assert libraries[name] == version(name).partition("+")[0], (target, name)
    assert "coremltools" not in found["libraries"]["export onnx"]
    assert "onnxscript" not in found["libraries"]["export onnx-fp16"]
    assert not {"pytest", "rich", "typer", "jinja2"} & {name for one in found["libraries"].values() for name in one}


TARGET = """
from acme_keys import tables
from acme_keys.inner import passes
from edgekit.errors import UsageError
import yaml_of_acme

def export(source, out, job):
    import onnx
    passes.run(tables.ROWS)
    onnx.load(source)

def load(artifact, place):
    from acme_keys import runtime
    return runtime.Run()
"""


@pytest.fixture
def plug_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], ModuleType]:
    """A third party's package, imported anew after each edit."""
    package = tmp_path / "acme_keys"
    (package / "inner").mkdir(parents=True)
    files = {
        "__init__.py": "",
        "target.py": TARGET,
        "tables.py": "ROWS = (1, 2)\n",
        "runtime.py": "class Run:\n    pass\n",
        "unused.py": "",
        "inner/__init__.py": "from acme_keys.inner import passes\n",
        "inner/passes.py": "from acme_keys.inner.deep import step\n\ndef run(rows):\n    step(rows)\n",
        "inner/deep.py": "def step(rows):\n    pass\n",
    }
    for name, text in files.items():
        (package / name).write_text(text)
    (tmp_path / "yaml_of_acme.py").write_text("")
    monkeypatch.syspath_prepend(str(tmp_path))

    def fresh() -> ModuleType:
        import importlib

        from edgekit.storage import code

        for name in [name for name in sys.modules if name.startswith("acme_keys")]:
            del sys.modules[name]
        importlib.invalidate_caches()
        code._reached.cache_clear()
        code._parsed.cache_clear()
        return importlib.import_module("acme_keys.target")

    return fresh


def test_the_package_of_a_plug_in_counts(plug_in: Callable[[], ModuleType]) -> None:
    target = plug_in()
    export = code_of(target.export)
    own = {name for name in export.modules if name.startswith("acme_keys")}
    assert own == {"acme_keys.target", "acme_keys.tables", "acme_keys.inner.passes", "acme_keys.inner.deep"}
    assert {name for name in code_of(target.load).modules if name.startswith("acme_keys")} == {
        "acme_keys.target",
        "acme_keys.runtime",
    }
    assert "onnx" in export.libraries
    folder = Path(str(target.__file__)).parent
    for name, changes in (("tables", True), ("inner/deep", True), ("runtime", False), ("unused", False)):
        path = folder / f"{name}.py"
        path.write_text(path.read_text() + "# edited\n")
        edited = code_of(plug_in().export)
        assert (edited.digest != export.digest) is changes, name
        export = edited


def test_joining_is_the_union() -> None:
    one, other = code_of(onnx.export), code_of(onnx_fp16.export)
    both = joined((one, other))
    assert set(both.modules) == set(one.modules) | set(other.modules)
    assert set(both.libraries) == set(one.libraries) | set(other.libraries)
    assert both.digest == joined((other, one)).digest
    assert one.digest == ReachedCode(dict(sorted(one.modules.items(), reverse=True)), {}).digest
