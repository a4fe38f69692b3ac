"""The program of a model that was given in memory: it can run code, and does so only at its user's word."""

from __future__ import annotations

import contextlib
import io
import json
import os
import pickle
import re
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from edgekit import api
from edgekit.errors import EdgekitError, ModelError
from edgekit.model.folder import load_builds_model, load_model, save_model
from edgekit.model.records import CONFIG, GRAPH, INFO, PROGRAM
from edgekit.model.spec import ModelSpec
from edgekit.storage.files import digest_file
from edgekit.storage.verified_io import seal_record
from edgekit_apps import assets as apps
from tests import modules, notebook
from tests.command import exit_code


def spec() -> ModelSpec:
    """Rows of six numbers, without a factory."""
    return modules.of_rows("rows", notebook.MyNet(), 6, batch=4)


class Evil:
    """What a pickle may ask for: to call a function of its writer's choice."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[object, ...]:
        return os.mkdir, (str(self.mark),)


def pickled(name: str, data: bytes, mark: Path) -> bytes:
    """Sample inputs that are a pickle of another kind."""
    if not name.endswith("sample_inputs/model.pt"):
        return data
    made = io.BytesIO()
    torch.save((Evil(mark),), made, pickle_module=pickle)
    return made.getvalue()


def evaluated(name: str, data: bytes, mark: Path) -> bytes:
    """A size that is an expression, which sympy evaluates."""
    if not name.endswith("models/model.json"):
        return data
    evil = json.dumps(f"__import__('os').mkdir({str(mark)!r}) or 7").encode()
    changed, times = re.subn(rb'"expr_str": "[^"]*"', lambda found: b'"expr_str": ' + evil, data)
    assert times
    return changed


def guarded(name: str, data: bytes, mark: Path) -> bytes:
    """A condition on the inputs, which PyTorch compiles as a Python expression."""
    if not name.endswith("models/model.json"):
        return data
    told = json.loads(data)
    told["guards_code"] = [f"__import__('os').mkdir({str(mark)!r}) is None"]
    return json.dumps(told).encode()


HOSTILE = (pickled, evaluated, guarded)


def hostile(folder: Path, mark: Path, change: Callable[[str, bytes, Path], bytes]) -> Path:
    """A model folder that is whole, of a stranger's making."""
    save_model(spec(), folder)
    program = folder / GRAPH / PROGRAM
    with zipfile.ZipFile(program) as there:
        files = {one.filename: there.read(one) for one in there.infolist()}
    with zipfile.ZipFile(program, "w") as made:
        for name, data in files.items():
            made.writestr(name, change(name, data, mark))
    told = json.loads((folder / GRAPH / INFO).read_text())
    (folder / GRAPH / INFO).write_text(seal_record({**told, "files": {PROGRAM: digest_file(program)}}))
    config = json.loads((folder / CONFIG).read_text())
    config["files"] |= {f"{GRAPH}/{name}": digest_file(folder / GRAPH / name) for name in (PROGRAM, INFO)}
    (folder / CONFIG).write_text(seal_record(config))
    return folder


@pytest.mark.parametrize("change", HOSTILE)
def test_a_strangers_program_runs_no_code_without_the_users_word(
    tmp_path: Path, change: Callable[[str, bytes, Path], bytes]
) -> None:
    mark, build = tmp_path / "mark", tmp_path / "build"
    model = hostile(build / "model", mark, change)
    (build / "onnx").mkdir()
    (build / "onnx" / "manifest.json").write_text("{}")
    app = tmp_path / "app"
    (app / "src/main").mkdir(parents=True)
    with pytest.raises(ModelError, match=r"which can run code .*--trust-build"):
        load_builds_model(model, trusted=False)
    for command in (["verify", build], ["pack", build, "--place", "ort-basic"], ["import", tmp_path / "r.zip", build]):
        assert exit_code(*command) == 2
    with pytest.raises(EdgekitError):
        api.verify(build, progress="none")
    with pytest.raises(EdgekitError):
        apps.write_assets("android", build, app)
    assert not mark.exists()
    with contextlib.suppress(Exception):  # it need not be a model: opening or running it has run the code
        load_model(model).module(torch.ones(2, 6))
    # Guards are not run at all: the captured ranges were proven without them.
    assert mark.exists() == (change is not guarded)
