"""A module captured where no edgekit is, and what is made of it here."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from edgekit import capture as alone
from edgekit.capture import ANSWERS, PROGRAM, RECORD, NotCapturedError, capture
from edgekit.errors import EdgekitError, ModelError, UsageError
from edgekit.model.evaluation_set import calibration_of, evaluation_of
from edgekit.model.program import Capture
from edgekit.model.sources import check_model, resolve_model
from edgekit.model.sources.captured import write_capture
from edgekit.model.spec import Axis
from edgekit.model.words import NOTHING, words_of
from edgekit.storage.door import read_record, sealed
from edgekit.storage.files import digest_file
from tests import models
from tests.command import exit_code

SCRIPT = """
import sys
sys.modules["edgekit"] = None  # nobody can import it
sys.path[:0] = [sys.argv[1]]
import torch
from capture import capture

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Conv2d(3, 4, 3, stride=2)
        self.words = torch.nn.Embedding(20, 4).bfloat16()

    def forward(self, images, scale=1.0, *, ids):
        return {"seen": self.layer(images).mean((2, 3)) * scale, "words": [self.words(ids), None]}

torch.manual_seed(0)
example = ((torch.rand(1, 3, 32, 32), 2.0), {"ids": torch.randint(0, 20, (1, 5))})
axes = {"images": "0=batch,2=height:32..128/16@64", "ids": "0=batch,1=tokens:1..9"}
capture(Net().eval(), example, sys.argv[1] + "/net", axes)
"""


@pytest.fixture(scope="module")
def captured(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Written by the file alone, in a process where edgekit cannot be imported."""
    folder = tmp_path_factory.mktemp("elsewhere")
    shutil.copyfile(alone.__file__, folder / "capture.py")
    ran = subprocess.run([sys.executable, "-I", "-c", SCRIPT, folder], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    return folder / "net"


def test_a_captured_module_is_a_model_here(captured: Path) -> None:
    check_model(f"capture:{captured}")
    spec = resolve_model(f"capture:{captured}", words_of(None, {"images": "kind=image"}, {"seen": "role=embedding"}))
    assert (spec.name, [i.name for i in spec.inputs]) == ("net", ["images", "ids"])
    assert [(o.name, o.role) for o in spec.outputs] == [("seen", "embedding"), ("words_0", "tensor")]
    height = spec.axes["height"]
    assert (height.minimum, height.maximum, height.multiple_of, height.default) == (32, 128, 16, 64)
    assert spec.inputs[0].kind == "image"
    assert spec.notes[0] == "'scale' is fixed at 2.0"
    assert f"torch {torch.__version__}: of 3 recorded answers" in spec.notes[1]
    answers = load_file(captured / ANSWERS)
    program = Capture(spec).program()  # proved at every shape
    for run in range(3):
        made = program.exported.module()(answers[f"{run}/in/0"], answers[f"{run}/in/1"])
        for number, tensor in enumerate(made):
            torch.testing.assert_close(tensor, answers[f"{run}/out/{number}"])


def test_a_folder_without_the_prefix_runs_no_code(captured: Path) -> None:
    with pytest.raises(UsageError, match=r"can run code of whoever wrote it: name it as capture:.* if you made it"):
        resolve_model(str(captured))


@pytest.mark.parametrize("file", [RECORD, PROGRAM, ANSWERS])
@pytest.mark.parametrize("damage", ["cut", "flipped", "gone"])
def test_what_was_changed_is_refused(captured: Path, tmp_path: Path, file: str, damage: str) -> None:
    folder = shutil.copytree(captured, tmp_path / "net")
    data = bytearray((folder / file).read_bytes())
    data[len(data) // 2] ^= 1
    (folder / file).write_bytes(data[:-7] if damage == "cut" else data)
    if damage == "gone":
        (folder / file).unlink()
    with pytest.raises(ModelError, match="is no captured module"):
        resolve_model(f"capture:{folder}")


def test_other_answers_than_those_recorded_are_refused(captured: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(captured, tmp_path / "net")
    answers = load_file(folder / ANSWERS)
    answers["2/out/0"] += 2e-4 * answers["2/out/0"].abs().max()
    save_file(answers, folder / ANSWERS)
    record = read_record(folder, RECORD)
    files = record["files"] | {ANSWERS: digest_file(folder / ANSWERS)}
    (folder / RECORD).write_text(sealed(record | {"files": files}))
    with pytest.raises(ModelError, match=r"answers otherwise with torch .*2\.0e-04 of an output's largest value"):
        resolve_model(f"capture:{folder}")


def test_axes_are_those_of_the_capture(captured: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="was captured with its axes"):
        resolve_model(f"capture:{captured}", words_of({"images": "0=batch"}, None, None))
    with pytest.raises(EdgekitError, match="no captured module"):
        check_model(f"capture:{tmp_path}")


class Branches(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x / 2 if x.sum() > 0 else x


class Rows(nn.Module):
    """Whose sizes are baked in by Python."""

    def forward(self, x: Tensor) -> Tensor:
        return x + 1 if x.shape[0] < 3 else x


class Draws(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x + torch.rand(())


@dataclass
class Answer:
    logits: Tensor
    text: str


class Speaks(nn.Module):
    def forward(self, x: Tensor) -> Answer:
        return Answer(x, "yes")


class Nested(nn.Module):
    def forward(self, x: Mapping[str, Tensor]) -> Tensor:
        return x["y"]


X = torch.ones(2, 4)


@pytest.mark.parametrize(
    ("module", "example", "axes", "why"),
    [
        (Branches().eval(), X, None, "'Branches' cannot be captured: .*torch.where or torch.cond"),
        (Rows().eval(), X, None, "'Rows' cannot be captured|the program of 'Rows'"),
        (Draws().eval(), X, None, "answers the same input differently twice"),
        (Speaks().eval(), X, None, "the answer holds a str"),
        (Nested().eval(), ({"y": X},), None, "'x' is a dict: give tensors"),
        (nn.Linear(4, 2).train(), X, None, "in training mode: call .eval()"),
        (nn.Linear, X, None, "a type is not captured"),
        (nn.Linear(5, 2).eval(), X, None, r"Linear does not take input \[2, 4\]"),
        (nn.Linear(4, 2).eval(), {"x": X}, None, r"does not fit forward\(input\)"),
        (nn.Linear(4, 2).eval(), X, {"x": "0=batch"}, "axes name the input 'x': possible are input"),
        (nn.Linear(4, 2).eval(), X, {"input": "5=batch"}, "the axis '5=batch' of 'input' cannot be read"),
        (nn.Linear(4, 2).eval(), X, {"input": "0=rows"}, "the axis 'rows' of 'input' has no range"),
    ],
)
def test_what_cannot_be_captured_is_one_sentence(
    module: nn.Module, example: object, axes: Mapping[str, str] | None, why: str, tmp_path: Path
) -> None:
    with pytest.raises(NotCapturedError, match=why) as refused:
        capture(module, example, tmp_path / "made", axes)
    assert "\n" not in str(refused.value)
    assert not list(tmp_path.iterdir())


def test_the_command_captures_a_factorys_module(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2]))
    monkeypatch.chdir(tmp_path)
    words = ("--inputs", "x:shape=2,6,range=-1..3", "--axes", "x:0=batch:1..4,1=length:2..12/2")
    assert exit_code("capture", "tests.models:plain", *words, "--name", "mine", "-o", "made") == 0
    assert capsys.readouterr().out == "captured: made\n"
    spec = resolve_model("capture:made")
    assert (spec.name, spec.axes) == ("mine", {"batch": Axis(1, 1, 4), "length": Axis(6, 2, 12, 2)})
    assert exit_code("capture", "tests.models:plain", *words, "-o", "made") == 2
    assert "'made' exists: name a folder that does not" in capsys.readouterr().err
    assert exit_code("capture", "tests.models:branching", "-o", "other") == 2
    assert "torch.where or torch.cond" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["made"]


def test_a_captured_models_names_roles_and_sets_are_its_own(tmp_path: Path) -> None:
    folder = write_capture("tests.models:declared", tmp_path / "declared", NOTHING)
    spec, own = resolve_model(f"capture:{folder}"), resolve_model("tests.models:declared")
    for fact in ("name", "inputs", "outputs", "axes", "licence"):
        assert getattr(spec, fact) == getattr(own, fact), fact
    evaluation, calibration = evaluation_of(spec), calibration_of(spec, 2)
    assert evaluation is not None
    assert calibration is not None
    assert (evaluation.names, evaluation.truth is None) == (("first", "second", "third"), False)
    np.testing.assert_array_equal(calibration.inputs["images"], models.PICTURES[:2])
    said = resolve_model(f"capture:{folder}", words_of(None, None, {"class": "role=labels"}))
    assert (said.outputs[0].role, said.inputs) == ("labels", own.inputs)
    (folder / "evaluation.safetensors").write_bytes(b"else")
    with pytest.raises(ModelError, match="its content is not what was recorded"):
        resolve_model(f"capture:{folder}")


def test_a_folder_that_exists_is_left(tmp_path: Path) -> None:
    with pytest.raises(NotCapturedError, match="exists: name a folder that does not"):
        capture(nn.Linear(4, 2).eval(), X, tmp_path)


def test_a_cache_that_is_empty_at_first_is_captured(tmp_path: Path) -> None:
    class Joined(nn.Module):
        def forward(self, new: Tensor, past: Tensor, mask: Tensor) -> Tensor:
            return torch.cat([past, new], 1) * mask[:, :, None]

    example = (torch.rand(1, 2, 4), torch.rand(1, 3, 4), torch.ones(1, 5))
    axes = {"new": "0=batch,1=tokens:1..4", "past": "0=batch,1=past:0..8", "mask": "0=batch,1=past+tokens"}
    capture(Joined().eval(), example, tmp_path / "joined", axes)
    spec = resolve_model(f"capture:{tmp_path / 'joined'}")
    assert (spec.axes["past"].minimum, spec.inputs[2].shape) == (0, ("batch", "past+tokens"))
    empty = [np.zeros((1, 1, 4), np.float32), np.zeros((1, 0, 4), np.float32), np.ones((1, 1), np.float32)]
    assert spec.module(*map(torch.from_numpy, empty)).shape == (1, 1, 4)
