"""A program that `torch.export.save` wrote is a model: what a user meets who exports one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
import torch
from torch import nn
from torch.export import Dim

import edgekit
from edgekit.errors import ModelError, UsageError
from edgekit.model.overrides import words_of
from edgekit.model.program import Capture
from edgekit.model.sources import check_model, resolve_model
from edgekit.model.spec import Axis
from tests.command import exit_code


class Net(nn.Module):
    """An image and a factor; it answers with a dictionary."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Conv2d(3, 4, 3, padding=1)
        self.head = nn.Linear(4, 5)

    def forward(self, images: torch.Tensor, *, factor: torch.Tensor) -> dict[str, torch.Tensor]:
        features = self.features(images) * factor
        return {"logits": self.head(features.mean((2, 3))), "features": features}


class Cached(nn.Module):
    """Tokens behind those of a cache, and a mask over both."""

    def forward(self, tokens: torch.Tensor, cache: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return torch.cat([cache, tokens], 1) * mask


def save(path: Path, axes: dict[str, Any] | None, module: nn.Module | None = None, *example: torch.Tensor) -> Path:
    """Write a program, as a user does where edgekit is not installed."""
    torch.manual_seed(0)
    if module is None:
        kwargs = {"factor": torch.rand(2, 1, 1, 1)}
        program = torch.export.export(Net().eval(), (torch.rand(2, 3, 32, 32),), kwargs, dynamic_shapes=axes)
    else:
        program = torch.export.export(module.eval(), example, dynamic_shapes=axes)
    torch.export.save(program, path)
    return path


BATCH = Dim("batch", min=1, max=4)
OPEN = {"images": {0: BATCH, 2: 16 * Dim("rows", min=1, max=3)}, "factor": {0: BATCH}}


def test_a_program_is_exported_and_verified_with_its_open_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    save(Path("My net.pt2"), OPEN)
    assert exit_code("export", "My net.pt2", "-t", "onnx", "--inputs", "images:kind=image", "--json") == 0
    capsys.readouterr()
    session = onnxruntime.InferenceSession(tmp_path / "build/my-net/onnx/model.onnx")
    assert [value.name for value in session.get_inputs()] == ["images", "factor"]
    program = torch.export.load("My net.pt2").module()
    for batch, height in ((1, 16), (4, 48)):
        images, factor = torch.rand(batch, 3, height, 32), torch.rand(batch, 1, 1, 1)
        answer = session.run(["logits"], {"images": images.numpy(), "factor": factor.numpy()})[0]
        np.testing.assert_allclose(answer, program(images, factor=factor)["logits"].detach(), atol=1e-5)


def test_axes_are_those_of_the_program_or_as_the_user_says(tmp_path: Path) -> None:
    spec = resolve_model(str(save(tmp_path / "net.pt2", OPEN)))
    assert [(i.name, i.shape) for i in spec.inputs] == [
        ("images", ("batch", 3, "height", 32)),
        ("factor", ("batch", 1, 1, 1)),
    ]
    assert spec.axes == {"batch": Axis(1, 1, 4), "height": Axis(32, 16, 48, 16)}
    assert [output.name for output in spec.outputs] == ["logits", "features"]
    words = words_of({"images": "0=rows:1..2,2=tall:16..32/16"}, None, {"logits": "role=logits"})
    spec = resolve_model(str(tmp_path / "net.pt2"), words)
    assert spec.axes == {"rows": Axis(2, 1, 2), "tall": Axis(32, 16, 32, 16)}
    assert spec.inputs[1].shape == ("rows", 1, 1, 1), "one size has one name"
    assert spec.outputs[0].role == "logits"


def test_a_size_without_an_end_needs_a_range_and_the_batch_has_its_usual_one(tmp_path: Path) -> None:
    path = save(tmp_path / "net.pt2", {"images": {0: Dim.AUTO, 3: Dim.DYNAMIC}, "factor": {0: Dim.AUTO}})
    with pytest.raises(UsageError, match=r"dimension 3 of 'images' .* Add --axes images:3=width:MIN\.\.MAX"):
        resolve_model(str(path))
    spec = resolve_model(str(path), words_of({"images": "3=width:16..64"}, None, None))
    assert spec.axes == {"batch": Axis(1, 1, 8), "width": Axis(32, 16, 64)}


def test_a_sum_of_axes_is_said_by_the_user(tmp_path: Path) -> None:
    example = torch.rand(2, 3, 4), torch.rand(2, 2, 4), torch.rand(2, 5, 1)
    dynamic = {0: Dim.DYNAMIC, 1: Dim.DYNAMIC}
    path = save(tmp_path / "cached.pt2", {"tokens": dynamic, "cache": dynamic, "mask": dynamic}, Cached(), *example)
    tokens, cache = "0=batch,1=tokens:1..4", "0=batch,1=past:0..3"
    with pytest.raises(UsageError, match="dimension 1 of 'mask'"):
        resolve_model(str(path), words_of({"tokens": tokens, "cache": cache}, None, None))
    axes = {"tokens": tokens, "cache": cache, "mask": "0=batch,1=past+tokens"}
    program = Capture(resolve_model(str(path), words_of(axes, None, None))).program()
    assert {"past": 0, "tokens": 1} in [{k: sizes[k] for k in ("past", "tokens")} for sizes in program.proof]


def test_a_fixed_batch_is_refused_unless_the_user_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = save(tmp_path / "net.pt2", None)
    assert exit_code("export", path, "-t", "onnx") == 2
    assert "has a fixed batch: dimension 0 of 'images' is always 2" in capsys.readouterr().err
    with pytest.raises(UsageError, match=r"dimension 0 of 'images', which the program .* fixes at 2"):
        resolve_model(str(path), words_of({"images": "0=batch"}, None, None))
    assert resolve_model(str(path), words_of({}, None, None)).axes == {}


def test_a_missing_file_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for words in ((), ("--axes", "images:0=batch")):
        assert exit_code("export", tmp_path / "gone.pt2", "-t", "onnx", *words) == 2
        assert "gone.pt2'" in capsys.readouterr().err
    with pytest.raises(UsageError, match="file does not exist"):
        check_model(str(tmp_path / "gone.pt2"))
    with pytest.raises(UsageError, match="file does not exist"):
        edgekit.export(str(tmp_path / "gone.pt2"), progress="none")


def test_another_file_is_told_by_its_kind(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "net.pt2"
    path.write_bytes(b"no archive" * 100)
    assert exit_code("export", path, "-t", "onnx") == 2
    assert "is not a torch.export program" in capsys.readouterr().err
    torch.save(Net().state_dict(), path)
    with pytest.raises(ModelError, match=r"is not a torch\.export program but a checkpoint"):
        resolve_model(str(path))
    whole = save(path, OPEN).read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ModelError, match=r"is not a torch\.export program"):
        resolve_model(str(path))


def test_a_program_that_this_torch_cannot_read_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = save(tmp_path / "net.pt2", OPEN)

    def refuse(*_: object) -> None:
        raise RuntimeError("schema version 99")

    monkeypatch.setattr(torch.export, "load", refuse)
    with pytest.raises(ModelError, match=r"cannot read the program .*schema version 99"):
        resolve_model(str(path))
