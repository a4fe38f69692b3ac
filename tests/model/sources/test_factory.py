"""No code from anywhere: which code may run because a user, edgekit or a build named it."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from edgekit.errors import ModelError
from edgekit.model.folder import CONFIG, load_model, save_model
from edgekit.model.sources import factory, resolve_model
from edgekit.storage.door import sealed
from tests.command import exit_code

MARKED = """
from pathlib import Path
Path({mark!r}).write_text("this code ran")
"""
FACTORY = """
from edgekit.testing import small_model
def make():
    return small_model()
"""


@pytest.fixture(autouse=True)
def _path(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(sys, "path", sys.path[:])
    modules = set(sys.modules)
    yield
    for name in set(sys.modules) - modules:
        if name.startswith("theirs_"):
            del sys.modules[name]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory of its own."""
    folder = tmp_path / "here"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


def test_a_preset_never_has_the_working_directory_and_a_named_factory_has_it_last(here: Path) -> None:
    resolve_model("arr-coc-tiny")
    assert str(here) not in sys.path
    (here / "theirs_named.py").write_text(FACTORY)
    assert resolve_model("theirs_named:make").factory == "theirs_named:make"
    assert sys.path[-1] == str(here)
    assert sys.path.count(str(here)) == 1


@pytest.mark.parametrize("start", [["-m", "edgekit"], ["-c", "from edgekit.cli.main import main; main()"]])
def test_a_file_in_the_working_directory_stands_in_for_no_library(here: Path, start: list[str]) -> None:
    mark = here.parent / "mark"
    for library in ("typer", "edgekit_targets", "scipy"):
        (here / f"{library}.py").write_text(MARKED.format(mark=str(mark)))
    path = ":".join(p for p in sys.path if p)
    # `-c` itself puts the working directory first, which the console script does not: -P stands for the latter.
    safe = ["-P"] if start[0] == "-c" else []
    done = subprocess.run([sys.executable, *safe, *start, "targets"], env={"PYTHONPATH": path}, capture_output=True)
    assert done.returncode == 0, done.stderr
    assert not mark.exists()


def test_a_builds_factory_in_the_working_directory_is_not_run(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    mark = here.parent / "mark"
    build, model = here / "build", here / "build" / "model"
    (here / "theirs_evil.py").write_text(FACTORY)
    save_model(resolve_model("theirs_evil:make"), model)
    sys.path.remove(str(here))
    del sys.modules["theirs_evil"]
    (here / "theirs_evil.py").write_text(MARKED.format(mark=str(mark)) + FACTORY)
    with pytest.raises(ModelError, match=r"'theirs_evil:make' is not on Python's path: .* --trust-build"):
        load_model(model)
    (build / "onnx").mkdir()
    (build / "onnx" / "manifest.json").write_text("{}")
    assert exit_code("verify", build) == 2
    assert "--trust-build" in capsys.readouterr().err
    assert not mark.exists()
    assert str(here) not in sys.path
    load_model(model, trust_build=True)
    assert mark.exists()


@pytest.mark.parametrize("module", ["theirs_one", "theirs_pkg.inner.two"])
@pytest.mark.parametrize("edited", [0, -1])
def test_a_builds_factory_runs_only_with_its_recorded_source(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: str, edited: int
) -> None:
    lib, mark = tmp_path / "lib", tmp_path / "mark"
    monkeypatch.syspath_prepend(str(lib))
    parts = module.split(".")
    files = [lib.joinpath(*parts[:n], "__init__.py") for n in range(1, len(parts))] + [
        lib.joinpath(*parts).with_suffix(".py")
    ]
    for file in files:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("")
    files[-1].write_text(FACTORY)
    save_model(resolve_model(f"{module}:make"), tmp_path / "model")
    for name in [name for name in sys.modules if name.startswith("theirs_")]:
        del sys.modules[name]
    assert load_model(tmp_path / "model").factory == f"{module}:make"
    for name in [name for name in sys.modules if name.startswith("theirs_")]:
        del sys.modules[name]
    files[edited].write_text(MARKED.format(mark=str(mark)) + files[edited].read_text())
    with pytest.raises(ModelError, match=f"the source of the build's factory '{module}:make' is not the one"):
        load_model(tmp_path / "model")
    assert not mark.exists()


@pytest.mark.parametrize(
    "name", ["antigravity:main", "os:getcwd", "sys:exit", "edgekit.cli.main:main", "no.such:one", ":", "a:"]
)
def test_a_factory_that_a_build_makes_up_is_not_run(tmp_path: Path, name: str) -> None:
    save_model(resolve_model("edgekit.testing:small_model"), tmp_path / "model")
    config = json.loads((tmp_path / "model" / CONFIG).read_text())
    for sha256 in (config["factory_sha256"], "", None):
        (tmp_path / "model" / CONFIG).write_text(sealed({**config, "factory": name, "factory_sha256": sha256}))
        with pytest.raises(ModelError, match="--trust-build"):
            load_model(tmp_path / "model")


def test_what_has_no_file_has_no_hash() -> None:
    assert [factory.source_sha256(name) for name in ("sys:exit", "no.such:one", ":", "")] == [""] * 4
    assert len(factory.source_sha256("edgekit.testing:small_model")) == 64
