"""Tricky modules: each answers right for both branches and all sizes, or is refused by name; none is baked."""

from __future__ import annotations

import random
import re
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from edgekit.errors import CaptureError, ExportError
from edgekit.model.spec import Axis, Input, ModelSpec, Output
from edgekit_targets.torchscript import mobile as torch_mobile
from edgekit_targets.torchscript.compile import compile_module


class Traced(nn.Module):
    """Answers by a function of Python, which TorchScript cannot compile: it has no keyword dictionaries."""

    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor, **options: object) -> Tensor:
        return self.function(x)


class BranchOnValue(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        if x.sum() > 0:
            return x * 2
        return x * 3


class LoopUntil(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        while bool(x.abs().max() > 0.1):
            x = x / 2
        return x


class BranchOnWeight(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(2.0))

    def forward(self, x: Tensor, **options: object) -> Tensor:
        return x * self.scale if self.scale.item() > 1 else x - 1


class BranchOnBatch(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        if x.shape[0] > 4:
            return x * 2
        return x * 3


class InPlaceOnInput(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        x.mul_(2)
        return x + 1


class OtherWhenScripted(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        if torch.jit.is_scripting():  # type: ignore[attr-defined]  # torch exports it without saying so
            return x * 2
        return x * 3


class DropsRows(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        kept = x[x.sum(1) > 0]
        return x + kept.sum() * len(kept)


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

    def forward(self, x: Tensor, **options: object) -> Tensor:
        y = x if self.last is None else x + self.last
        self.last = x
        return y


def in_place_on_slice(x: Tensor) -> Tensor:
    y = x.clone()
    y[:, 1:] += y[:, :-1] * 2
    return y


def swallowed_error(x: Tensor) -> Tensor:
    try:
        if not (x > 0).all():
            raise ValueError("negative")
    except Exception:
        return x * 3
    return x * 2


def training() -> nn.Module:
    module = nn.Sequential(nn.Dropout(0.5)).eval()
    module[0].train()
    return module


RIGHT: dict[str, tuple[Callable[[], nn.Module], bool]] = {
    "branch on a value": (BranchOnValue, True),
    "loop until": (LoopUntil, True),
    "branch on a weight": (BranchOnWeight, True),
    "branch on the batch": (BranchOnBatch, True),
    "in place on the input": (InPlaceOnInput, True),
    "in place on a slice": (lambda: Traced(in_place_on_slice), True),
    "another when scripted": (OtherWhenScripted, True),
    "drops rows": (DropsRows, True),
    "captured batch": (lambda: Traced(lambda x: x + torch.arange(int(x.shape[0]) * 4).view(-1, 4)), False),
    "a batch that is never tried": (lambda: Traced(lambda x: x * 2 if x.shape[0] == 5 else x * 3), False),
    "loop over the batch": (lambda: Traced(lambda x: torch.stack([row * 2 for row in x])), False),
}
REFUSED: dict[str, tuple[Callable[[], nn.Module], str]] = {
    "branch on a value": (lambda: Traced(lambda x: x * 2 if x.sum() > 0 else x * 3), r"if x.sum\(\) > 0"),
    "equal": (lambda: Traced(lambda x: x * 2 if torch.equal(x, x.abs()) else x * 3), "torch.equal"),
    "allclose": (lambda: Traced(lambda x: x * 2 if torch.allclose(x, x.abs()) else x * 3), "torch.allclose"),
    "list indexed by a tensor": (lambda: Traced(lambda x: [x * 3, x * 2][x.sum() > 0]), r"\[x \* 3, x \* 2\]"),
    "swallowed error": (lambda: Traced(swallowed_error), r"\(x > 0\).all\(\)"),
    "item": (lambda: Traced(lambda x: torch.mul(x, x.max().item())), r"torch.mul\(x, x.max\(\).item"),
    "tolist": (lambda: Traced(lambda x: x * max(x.flatten().tolist())), "tolist"),
    "numpy": (lambda: Traced(lambda x: x * float(np.abs(x.detach().numpy()).max())), "numpy"),
    "sliced by a value": (lambda: Traced(lambda x: x.roll(int(x.argmax()) % 3, 1)), "argmax"),
    "dropout in training": (training, "'0' \\(Dropout\\) is in training mode"),
    "random numbers": (lambda: Traced(torch.rand_like), "random numbers"),
    "Python's random numbers": (lambda: Traced(lambda x: x + random.random()), "random numbers"),
    "counter": (Counter, "keeps state"),
    "memory": (Memory, "keeps state"),
}


@pytest.mark.parametrize("name", RIGHT)
def test_is_right_for_both_branches_and_every_advertised_size(name: str) -> None:
    kind, dynamic = RIGHT[name]
    spec = made(kind().eval())
    program = compile_module(spec, torch_mobile._fold)
    assert program.dynamic == (("batch",) if dynamic else ())
    for batch in range(1, 9) if dynamic else (2,):
        for x in (torch.full((batch, 4), 0.5), torch.full((batch, 4), -0.5), torch.linspace(-1, 1, 4).repeat(batch, 1)):
            with torch.no_grad():
                torch.testing.assert_close(program.module(x.clone()), spec.module(x.clone()))


@pytest.mark.parametrize("name", REFUSED)
def test_is_refused_with_its_cause(name: str) -> None:
    kind, named = REFUSED[name]
    module = kind()
    torch.manual_seed(0)  # two draws of dropout on eight values are the same once in 256 times
    with pytest.raises(CaptureError, match=named) as refusal:
        compile_module(made(module if kind is training else module.eval()), torch_mobile._fold)
    assert "\n" not in str(refusal.value)
    if name == "item":
        assert re.search(rf"{__file__}:\d+ \(.*torch.mul", str(refusal.value))


def test_a_captured_program_is_refused_since_its_code_is_not_here() -> None:
    captured = torch.export.export(nn.Linear(4, 2).eval(), (torch.ones(2, 4),)).module()
    with pytest.raises(ExportError, match="TorchScript compiles the module itself"):
        compile_module(made(captured), torch_mobile._fold)


class Gain(nn.Module):
    def __init__(self, gain: float) -> None:
        super().__init__()
        self.gain = gain

    def forward(self, x: Tensor) -> Tensor:
        return x * self.gain


def test_a_modules_own_rounding_is_no_other_answer() -> None:
    """Also not that of a module which takes away what it added, and with it three digits."""
    cancels, exact = Traced(lambda x: (x + 1000.0) - 1000.0).eval(), Traced(lambda x: x * 1.0).eval()
    for module in (cancels, exact):
        compile_module(made(module), lambda _: torch.jit.script(Gain(1.0).eval()))
        with pytest.raises(CaptureError, match="the program answers differently"):
            compile_module(made(module), lambda _: torch.jit.script(Gain(1.0003).eval()))


def made(module: nn.Module) -> ModelSpec:
    return ModelSpec(
        name="tricky",
        module=module,
        inputs=(Input("x", ("batch", 4), low=-1.0),),
        outputs=(Output("y"),),
        axes={"batch": Axis(2, 1, 8)},
    )
