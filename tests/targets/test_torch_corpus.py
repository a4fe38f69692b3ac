"""Tricky modules: each answers right for both branches and all sizes, or is refused by name; none is baked."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from edgekit.errors import CaptureError, ExportError
from edgekit.model.spec import Axis, Input, ModelSpec, Output
from edgekit_targets import torch_mobile
from edgekit_targets._torchscript.compile import compiled


def any_options(forward: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Keeps TorchScript from compiling a method: it has no keyword dictionaries."""

    def wrapped(self: nn.Module, x: Tensor, **options: object) -> Tensor:
        return forward(self, x)

    return wrapped


class BranchOnValue(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        if x.sum() > 0:
            return x * 2
        return x * 3


class BranchOnValueUnscriptable(nn.Module):
    @any_options
    def forward(self, x: Tensor) -> Tensor:
        return x * 2 if x.sum() > 0 else x * 3


class LoopUntil(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        while bool(x.abs().max() > 0.1):
            x = x / 2
        return x


class BranchOnEqual(nn.Module):
    @any_options
    def forward(self, x: Tensor) -> Tensor:
        return x * 2 if torch.equal(x, x.abs()) else x * 3


class BranchOnAllclose(nn.Module):
    @any_options
    def forward(self, x: Tensor) -> Tensor:
        return x * 2 if torch.allclose(x, x.abs()) else x * 3


class ListIndexedByTensor(nn.Module):
    @any_options
    def forward(self, x: Tensor) -> Tensor:
        return [x * 3, x * 2][x.sum() > 0]


class SwallowedAssert(nn.Module):
    @any_options
    def forward(self, x: Tensor) -> Tensor:
        try:
            if not (x > 0).all():
                raise ValueError("negative")
        except Exception:
            return x * 3
        return x * 2


class Itemized(nn.Module):
    @any_options
    def forward(self, x: Tensor) -> Tensor:
        return torch.mul(x, x.max().item())


class Listed(nn.Module):
    @any_options
    def forward(self, x: Tensor) -> Tensor:
        largest: float = max(x.flatten().tolist())
        return x * largest


class ThroughNumpy(nn.Module):
    @any_options
    def forward(self, x: Tensor) -> Tensor:
        return x * float(np.abs(x.detach().numpy()).max())


class SlicedByValue(nn.Module):
    @any_options
    def forward(self, x: Tensor) -> Tensor:
        k = int(x.argmax()) % 3
        return x.roll(k, 1)


class BranchOnWeight(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(2.0))

    @any_options
    def forward(self, x: Tensor) -> Tensor:
        return x * self.scale if self.scale.item() > 1 else x - 1


class CapturedBatch(nn.Module):
    @any_options
    def forward(self, x: Tensor) -> Tensor:
        return x + torch.arange(int(x.shape[0]) * 4).view(-1, 4)


class BranchOnBatch(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        if x.shape[0] > 4:
            return x * 2
        return x * 3


class BranchOnOneBatch(nn.Module):
    """Off the grid: batch 5 is never tried."""

    @any_options
    def forward(self, x: Tensor) -> Tensor:
        return x * 2 if x.shape[0] == 5 else x * 3


class LoopOverBatch(nn.Module):
    @any_options
    def forward(self, x: Tensor) -> Tensor:
        return torch.stack([row * 2 for row in x])


class InPlaceOnInput(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        x.mul_(2)
        return x + 1


class InPlaceOnSlice(nn.Module):
    @any_options
    def forward(self, x: Tensor) -> Tensor:
        y = x.clone()
        y[:, 1:] += y[:, :-1] * 2
        return y


class DropoutInTraining(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.drop = nn.Dropout(0.5)
        self.eval()
        self.drop.train()

    def forward(self, x: Tensor) -> Tensor:
        return torch.as_tensor(self.drop(x))


class FunctionalDropout(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.dropout(x, 0.5)


class RandomNumbers(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x + torch.rand_like(x)


class PythonsRandom(nn.Module):
    @any_options
    def forward(self, x: Tensor) -> Tensor:
        return x + random.random()


class Counter(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.seen = nn.Buffer(torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        self.seen.add_(1)
        return x * self.seen


class Memory(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.last: Tensor | None = None

    @any_options
    def forward(self, x: Tensor) -> Tensor:
        y = x if self.last is None else x + self.last
        self.last = x
        return y


class OtherWhenScripted(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        if torch.jit.is_scripting():  # type: ignore[attr-defined]  # torch exports it without saying so
            return x * 2
        return x * 3


class DropsRows(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        kept = x[x.sum(1) > 0]
        return x + kept.sum() * len(kept)


RIGHT = [
    (BranchOnValue, True),
    (LoopUntil, True),
    (BranchOnWeight, True),
    (BranchOnBatch, True),
    (InPlaceOnInput, True),
    (InPlaceOnSlice, True),
    (OtherWhenScripted, True),
    (DropsRows, True),
    (CapturedBatch, False),
    (BranchOnOneBatch, False),
    (LoopOverBatch, False),
]
REFUSED = [
    (BranchOnValueUnscriptable, r"if x.sum\(\) > 0"),
    (BranchOnEqual, "torch.equal"),
    (BranchOnAllclose, "torch.allclose"),
    (ListIndexedByTensor, r"\[x \* 3, x \* 2\]"),
    (SwallowedAssert, r"\(x > 0\).all\(\)"),
    (Itemized, r"torch.mul\(x, x.max\(\).item"),
    (Listed, "tolist"),
    (ThroughNumpy, "numpy"),
    (SlicedByValue, "argmax"),
    (DropoutInTraining, "'drop' \\(Dropout\\) is in training mode"),
    (FunctionalDropout, "random numbers"),
    (RandomNumbers, "random numbers"),
    (PythonsRandom, "random numbers"),
    (Counter, "remembers"),
    (Memory, "remembers"),
]


@pytest.mark.parametrize(("kind", "dynamic"), RIGHT)
def test_is_right_for_both_branches_and_every_advertised_size(kind: type[nn.Module], dynamic: bool) -> None:
    spec = made(kind)
    found = compiled(spec, torch_mobile._folded)
    assert found.dynamic == (("batch",) if dynamic else ())
    for batch in range(1, 9) if dynamic else (2,):
        for x in (torch.full((batch, 4), 0.5), torch.full((batch, 4), -0.5), torch.linspace(-1, 1, 4).repeat(batch, 1)):
            with torch.no_grad():
                torch.testing.assert_close(found.module(x.clone()), spec.module(x.clone()))


@pytest.mark.parametrize(("kind", "named"), REFUSED)
def test_is_refused_with_its_cause(kind: type[nn.Module], named: str) -> None:
    torch.manual_seed(0)  # two draws of dropout on eight values are the same once in 256 times
    with pytest.raises(CaptureError, match=named) as refusal:
        compiled(made(kind), torch_mobile._folded)
    assert "\n" not in str(refusal.value)


def test_a_refusal_names_file_and_line() -> None:
    with pytest.raises(CaptureError, match=rf"{__file__}:\d+ \(return torch.mul"):
        compiled(made(Itemized), torch_mobile._folded)


def test_a_captured_program_is_refused_since_its_code_is_not_here() -> None:
    spec = made(RIGHT[0][0])
    captured = torch.export.export(nn.Linear(4, 2).eval(), (torch.ones(2, 4),)).module()
    with pytest.raises(ExportError, match="TorchScript compiles the module itself"):
        compiled(replace(spec, module=captured), torch_mobile._folded)


class Cancels(nn.Module):
    """Takes away what it added, and with it three digits."""

    def forward(self, x: Tensor) -> Tensor:
        return (x + 1000.0) - 1000.0


class Gain(nn.Module):
    def __init__(self, gain: float) -> None:
        super().__init__()
        self.gain = gain

    def forward(self, x: Tensor) -> Tensor:
        return x * self.gain


def answers_as(kind: type[nn.Module], gain: float) -> None:
    """Compile a module to a program that says its input times a number."""
    compiled(made(kind), lambda _: torch.jit.script(Gain(gain).eval()))


def test_a_modules_own_rounding_is_no_other_answer() -> None:
    answers_as(Cancels, 1.0)
    answers_as(Exact, 1.0)
    for kind, gain in ((Cancels, 1.0003), (Exact, 1.0003)):
        with pytest.raises(CaptureError, match="the program answers differently"):
            answers_as(kind, gain)


class Exact(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x * 1.0


def made(kind: type[nn.Module]) -> ModelSpec:
    module = kind()
    if kind is not DropoutInTraining:
        module.eval()
    return ModelSpec(
        name=kind.__name__.lower(),
        module=module,
        inputs=(Input("x", ("batch", 4), low=-1.0),),
        outputs=(Output("y"),),
        axes={"batch": Axis(2, 1, 8)},
    )
