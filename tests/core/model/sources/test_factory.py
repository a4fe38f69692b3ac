"""No code from anywhere: which code may run because a user, edgekit or a build named it."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from edgekit import doors
from edgekit.errors import ModelError
from edgekit.model.folder import load_builds_model, save_model
from edgekit.model.records import CONFIG
from edgekit.model.sources import factory, presets, resolve_model
from edgekit.storage.verified_io import seal_record
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
    with pytest.raises(ModelError, match=r"comes from 'theirs_evil:make', .* --trust-build"):
        load_builds_model(model, trusted=False)
    (build / "onnx").mkdir()
    (build / "onnx" / "manifest.json").write_text("{}")
    assert exit_code("verify", build) == 2
    assert "--trust-build" in capsys.readouterr().err
    assert not mark.exists()
    assert str(here) not in sys.path
    load_builds_model(model, trusted=True)
    assert mark.exists()


@pytest.mark.parametrize(
    "name",
    [
        "code:interact",
        "pdb:set_trace",
        "pip:main",
        "torch.utils.collect_env:main",
        "antigravity:main",
        "sys:exit",
        "edgekit.cli.main:main",
        "edgekit_arrcoc.presets:Path",
        "edgekit_arrcoc.presets:from_checkpoint",
        "edgekit_arrcoc.presets:_random_arr_coc_01",
        "edgekit.testing:QuietListener",
        "edgekit.testing.models:np.load",
        "theirs_one:make",
        "no.such:one",
        ":",
        "a:",
    ],
)
def test_a_factory_that_edgekit_does_not_ship_runs_with_the_users_word_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    mark, model = tmp_path / "mark", tmp_path / "model"
    (tmp_path / "theirs_one.py").write_text(MARKED.format(mark=str(mark)) + FACTORY)
    monkeypatch.syspath_prepend(str(tmp_path))
    save_model(resolve_model("edgekit.testing:small_model"), model)
    assert load_builds_model(model, trusted=False).name == "small"
    config = json.loads((model / CONFIG).read_text())
    (model / CONFIG).write_text(seal_record({**config, "factory": name}))
    with pytest.raises(ModelError, match="run with --trust-build"):
        load_builds_model(model, trusted=False)
    assert not mark.exists()


@pytest.mark.parametrize("name", presets())
def test_what_edgekit_ships_runs(name: str) -> None:
    assert factory.is_shipped(doors.sources.find(name).factory)
