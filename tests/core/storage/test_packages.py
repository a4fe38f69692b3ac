import importlib
import sys
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import pytest

from edgekit import registry
from edgekit.storage.environment import package_digest
from edgekit.target import ExportResult, Need, Target

TARGET = "def export(source, out, job): ...\n\n\ndef load(artifact, place): ...\n"


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A third party's package, importable."""
    folder = tmp_path / "acme_keys"
    (folder / "inner").mkdir(parents=True)
    for name, text in (("__init__.py", ""), ("target.py", TARGET), ("inner/tables.py", "ROWS = (1, 2)\n")):
        (folder / name).write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    importlib.invalidate_caches()
    yield folder
    for name in [name for name in sys.modules if name.startswith("acme_keys")]:
        del sys.modules[name]


def digest(*modules: str) -> str:
    package_digest.cache_clear()
    return package_digest(*modules)


def target_of(module: str, *needs: Need) -> Target:
    found = importlib.import_module(module)
    return Target(summary="", export=found.export, load=found.load, places=(), needs=needs)


def code_digest(target: Target) -> str:
    package_digest.cache_clear()
    return registry.code_digest(target)


@pytest.mark.parametrize("name", ["target.py", "inner/tables.py", "unused.py", "inner/fast.so"])
def test_an_edit_of_any_file_of_code_changes_the_hash(package: Path, name: str) -> None:
    target = target_of("acme_keys.target")
    before = code_digest(target)
    with (package / name).open("a") as stream:
        stream.write("# edited\n")
    assert code_digest(target) != before


def test_a_renamed_file_changes_the_hash(package: Path) -> None:
    before = digest("acme_keys.target")
    (package / "inner" / "tables.py").rename(package / "inner" / "rows.py")
    assert digest("acme_keys.target") != before


def test_what_is_no_code_and_what_is_another_package_change_nothing(package: Path) -> None:
    target = target_of("acme_keys.target")
    before = code_digest(target)
    (package / "notes.txt").write_text("written while it runs")
    (package / "__pycache__" / "target.cpython-311.pyc").parent.mkdir(exist_ok=True)
    (package / "__pycache__" / "target.cpython-311.pyc").write_bytes(b"")
    (package.parent / "unrelated").mkdir()
    (package.parent / "unrelated" / "__init__.py").write_text("")
    assert code_digest(target) == before


def test_edgekits_own_files_are_in_the_hash_of_every_target(package: Path) -> None:
    target = target_of("acme_keys.target")
    assert code_digest(target) == digest("edgekit", "mil_interpreter", "acme_keys") != digest("acme_keys")
    assert code_digest(registry.find("onnx")) == digest("edgekit", "mil_interpreter", "edgekit_targets")


def test_a_module_without_a_package_counts_by_its_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "acme_one_file.py").write_text(TARGET)
    monkeypatch.syspath_prepend(str(tmp_path))
    before = digest("acme_one_file")
    (tmp_path / "acme_one_file.py").write_text(TARGET + "\n")
    assert digest("acme_one_file") != before
    assert digest("no_such_package_of_acme") == digest("no_such_package_of_acme")


def test_nothing_is_imported(package: Path) -> None:
    digest("acme_keys.target")
    assert "acme_keys" not in sys.modules


def test_a_callable_object_counts_by_its_class() -> None:
    class Export:
        def __call__(self, source: object, out: object, job: object) -> ExportResult:
            raise NotImplementedError

    onnx = registry.find("onnx")
    target = Target(summary="", export=Export(), load=onnx.load, places=())
    assert code_digest(target) == digest("edgekit", "mil_interpreter", "edgekit_targets", __name__)


def test_versions_are_those_of_edgekit_and_of_what_a_target_declares() -> None:
    from importlib.metadata import version

    found = registry.versions(registry.find("coreml"))
    for name in ("edgekit-export", "torch", "numpy", "onnx", "coremltools"):
        assert found[name] == version(name).partition("+")[0], name
    others = registry.versions(registry.find("onnx"))
    assert {"onnxruntime", "onnxscript"} <= others.keys()
    assert not {"coremltools", "transformers", "pytest", "rich", "typer", "jinja2"} & others.keys()


def test_what_brings_a_module_is_what_python_says() -> None:
    registry._distributions.cache_clear()  # other tests of this process import what adds folders to sys.path
    brought = {module: names for module, names in metadata.packages_distributions().items() if module.isidentifier()}
    onnx = registry.find("onnx")
    needs = tuple(Need(module, "any") for module in brought)
    target = Target(summary="", export=onnx.export, load=onnx.load, places=(), needs=needs)
    assert registry.versions(target).keys() == {*registry.LIBRARIES, *(n for names in brought.values() for n in names)}
