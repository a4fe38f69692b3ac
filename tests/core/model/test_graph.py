import json
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from torch import Tensor

from edgekit.errors import CaptureError, ModelError
from edgekit.model.adapter import named_outputs, to_tensors
from edgekit.model.graph import capture
from edgekit.model.program import load_program, program_matches, save_program
from edgekit.model.records import PROGRAM
from edgekit.model.sources.checkpoint import write_checkpoint
from edgekit.model.spec import Axis, Input, ModelSpec, Output
from edgekit.storage.verified_io import seal_record
from edgekit.testing import small_model
from tests import models

MODELS = Path(models.__file__)


@pytest.fixture(autouse=True)
def _reset() -> Iterator[None]:
    yield
    torch._dynamo.reset()


def line(function: Callable[..., object], text: str) -> str:
    start = function.__code__.co_firstlineno
    lines = MODELS.read_text().splitlines()
    return f"models.py:{next(n for n in range(start, len(lines)) if text in lines[n - 1])}"


def test_a_capture_is_dynamic_proved_and_survives_its_file(tmp_path: Path) -> None:
    spec = small_model()
    captured = capture(spec)
    assert captured.dynamic == ("batch", "height", "width")
    assert {sizes["batch"] for sizes in captured.proof} == {1, 2, 3, 8}
    save_program(captured, tmp_path / "program", "abc")
    assert program_matches(tmp_path / "program", "abc")
    assert not program_matches(tmp_path / "program", "abd")
    again = load_program(tmp_path / "program")
    inputs = to_tensors(spec, spec.random(3, {"batch": 5, "height": 112, "width": 144}))
    with torch.no_grad():
        assert torch.equal(again.exported.module()(*inputs)[0], spec.module(*inputs)[0])


def test_a_static_capture_has_no_dynamic_axis() -> None:
    captured = capture(small_model(), dynamic=False)
    assert captured.dynamic == ()
    assert captured.proof == ({"batch": 1, "height": 96, "width": 96},)


class Tied(torch.nn.Module):
    """Two layers with one weight, a transposed weight, and a buffer that is not saved."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = torch.nn.Linear(64, 64), torch.nn.Linear(64, 64)
        self.second.weight = self.first.weight
        self.turned = torch.nn.Parameter(torch.randn(48, 64).T)
        self.register_buffer("mask", torch.randn(64, 64), persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        mixed: torch.Tensor = self.second(torch.relu(self.first(x)) @ self.get_buffer("mask")) @ self.turned
        return mixed


def test_weights_are_stored_once_and_a_copied_program_is_whole(tmp_path: Path) -> None:
    spec = ModelSpec("tied", Tied().eval(), (Input("x", (2, 64)),), (Output("y"),))
    weights = tmp_path / "model" / "model.safetensors"
    weights.parent.mkdir()
    write_checkpoint(weights, spec.module.state_dict())
    save_program(capture(spec, dynamic=False), tmp_path / "program", "abc", weights)
    assert (tmp_path / "program" / "model.safetensors").samefile(weights)
    stored = json.loads((tmp_path / "program" / "program.json").read_text())["weights"]
    assert stored == {"first.weight": "first.weight", "second.weight": "first.weight"}  # not what is turned, nor small
    copy = Path(shutil.copytree(tmp_path / "program", tmp_path / "moved" / "program"))
    x = torch.randn(2, 64)
    for folder in (tmp_path / "program", copy):
        assert program_matches(folder, "abc")
        again = load_program(folder).exported
        with torch.no_grad():
            assert torch.equal(again.module()(x)[0], spec.module(x)[0])
        assert again.state_dict["first.weight"].data_ptr() == again.state_dict["second.weight"].data_ptr()
        assert again.state_dict["turned"].stride() == spec.module.get_parameter("turned").stride()
    data = bytearray((copy / "model.safetensors").read_bytes())
    data[-1] ^= 1
    (copy / "model.safetensors").write_bytes(data)
    assert not program_matches(copy, "abc")
    with pytest.raises(CaptureError, match="is damaged"):
        load_program(copy)


@pytest.mark.parametrize("damage", ["missing", "names", "shape"])
def test_a_program_without_its_weights_is_a_sentence(tmp_path: Path, damage: str) -> None:
    spec = small_model()
    weights = tmp_path / "model.safetensors"
    write_checkpoint(weights, spec.module.state_dict())
    save_program(capture(spec, dynamic=False), tmp_path / "folder" / "program", "abc", weights)
    info = json.loads((tmp_path / "folder" / "program" / "program.json").read_text())
    name = next(iter(info["weights"]))
    if damage == "missing":
        (tmp_path / "folder" / "program" / "model.safetensors").unlink()
        del info["files"]["model.safetensors"]
    elif damage == "names":
        info["weights"][name] = "nothing"
    else:
        shapes = {n: tensor.shape for n, tensor in spec.module.state_dict().items()}
        info["weights"][name] = next(n for n, shape in shapes.items() if shape != shapes[name])
    (tmp_path / "folder" / "program" / "program.json").write_text(seal_record(info))
    with pytest.raises(CaptureError, match="lacks its weights"):
        load_program(tmp_path / "folder" / "program")


def test_a_damaged_program_is_not_trusted(tmp_path: Path) -> None:
    save_program(capture(small_model(), dynamic=False), tmp_path / "program", "abc")
    with (tmp_path / "program" / PROGRAM).open("ab") as stream:
        stream.write(b"x")
    assert not program_matches(tmp_path / "program", "abc")


@pytest.mark.parametrize(
    ("function", "sentence", "text"),
    [
        (models.branch_on_values, "branches or computes on tensor values", "if x.mean()"),
        (models.value_in_python, "branches or computes on tensor values", "float(x.max())"),
        (models.branch_on_size, "fails at {'batch': 1, 'height': 64", "if x.shape[2] == 64"),
        (models.fixed_size, "cannot be captured", "reshape"),
        (models.narrow, "captured only for", "if x.shape[2] > 80"),
        (models.random_numbers, "each time", ""),
    ],
)
def test_what_cannot_be_captured_is_refused_by_name_and_line(
    function: Callable[[Tensor, Tensor], Tensor], sentence: str, text: str
) -> None:
    with pytest.raises(CaptureError, match=re.escape(sentence)) as caught:
        capture(models.spec("theirs", models.Function(function)))
    assert "'theirs'" in str(caught.value)
    assert "\n" not in str(caught.value)
    if function in (models.branch_on_size, models.narrow):
        assert str(caught.value).endswith("fix the axis (minimum = maximum)")
    if text:
        assert line(function, text) in str(caught.value)


def test_training_mode_is_refused() -> None:
    spec = models.spec("theirs", models.Dropped())
    spec.module.train()
    with pytest.raises(CaptureError, match="modules in training mode"):
        capture(spec)


def test_a_wrong_number_of_outputs_is_refused() -> None:
    two = ModelSpec(name="two", module=models.Function(lambda x, s: x * s), inputs=models.IMAGES, outputs=(), axes={})
    with pytest.raises(ModelError, match="returned 1 outputs but declares 0"):
        named_outputs(two, torch.zeros(1))


def test_an_output_that_loses_an_axis_at_a_size_is_refused() -> None:
    class Squeezed(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.squeeze(1) * 2

    axes = {"batch": Axis(1, 1, 4), "steps": Axis(1, 1, 8)}
    spec = ModelSpec("net", Squeezed().eval(), (Input("x", ("batch", "steps", 2)),), (Output("y"),), axes)
    with pytest.raises(CaptureError, match=r"'y' of 'net' has \d axes at .* and \d at .*squeeze\(\)"):
        capture(spec)
