"""Branches on values: both sides are in the file, and a side that no input took is named."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import edgekit
from edgekit.artifact.store import read_artifact
from edgekit.model.spec import ModelSpec
from edgekit_targets.torchscript import compile as compile_module
from tests import modules


class Encoder(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        answer: torch.Tensor = self.layer(x).relu() - 0.3
        return answer


class Head(torch.nn.Module):
    """A head with control flow, which calls a traced encoder."""

    def __init__(self, encoder: torch.nn.Module) -> None:
        super().__init__()
        self.encoder = encoder
        self.small = torch.nn.Linear(8, 2)
        self.large = torch.nn.Linear(8, 2)
        self.limit = 0.0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.encoder(x)
        if bool(y.mean() > self.limit):
            answer: torch.Tensor = self.large(y)
        else:
            answer = self.small(y) - 1.0
        return answer


def hybrid() -> ModelSpec:
    torch.manual_seed(0)
    with torch.no_grad():
        encoder = torch.jit.trace(Encoder().eval(), torch.randn(2, 8))  # type: ignore[no-untyped-call]  # torch's
    return modules.of_rows("hybrid", Head(encoder), 8, low=-1.0, factory=f"{__name__}:hybrid")


@pytest.mark.nightly
@pytest.mark.filterwarnings("ignore:.*torch.jit")
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor:UserWarning")
def test_a_traced_encoder_under_a_head_with_control_flow_is_proved_on_both_sides(tmp_path: Path) -> None:
    spec = hybrid()
    build = edgekit.export(spec, targets=["torchscript"], output=tmp_path, progress="none")
    assert build["torchscript"].status == "verified"
    assert not [note for note in read_artifact(tmp_path / "hybrid" / "torchscript").notes if "one side" in note]
    loaded = torch.jit.load(tmp_path / "hybrid" / "torchscript" / "model.pt")  # type: ignore[no-untyped-call]  # torch's
    sides = set()
    for seed in range(40):
        x = 4 * torch.randn(1, 8, generator=torch.Generator().manual_seed(seed))
        sides.add(bool(spec.module.encoder(x).mean() > 0))  # type: ignore[operator]  # a submodule
        assert torch.allclose(loaded(x), spec.module(x), atol=1e-6)
    assert sides == {True, False}


@pytest.mark.filterwarnings("ignore:.*torch.jit")
def test_a_side_that_no_input_took_is_named_with_its_line() -> None:
    spec = hybrid()
    spec.module.limit = 1000.0  # type: ignore[assignment]  # an attribute of Head
    (said,) = compile_module.one_sided_branches(spec)
    line = next(n for n, text in enumerate(Path(__file__).read_text().splitlines(), 1) if "if bool(y" in text)
    assert said.startswith(f"the branch at test_branches.py:{line} took only one side for the 36 inputs")


def test_a_module_without_branches_on_values_is_asked_little() -> None:
    spec = modules.of_rows("plain", Encoder(), 8)
    assert compile_module.one_sided_branches(spec) == ()
