"""Modules as people write them: their inputs, answers, weights and axes are of every kind, ARR-COC's is one of them."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from edgekit.model.spec import Axis, Input, ModelSpec, Output

BATCH = {"batch": Axis(1, 1, 3)}
ROWS = (Input("x", ("batch", 6)),)
IDS = (Input("ids", ("batch", 5), dtype="int64", low=0, high=9),)


class Formula(nn.Module):
    """A linear layer and a formula of it and the input."""

    def __init__(self, formula: Callable[[nn.Linear, Tensor], Any]) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.linear = nn.Linear(6, 4)
        self.formula = formula

    def forward(self, x: Tensor) -> Any:
        return self.formula(self.linear, x)


@dataclass
class Answer:
    logits: Tensor
    hidden: Tensor | None = None
    others: tuple[Tensor, ...] = ()


class Recurrent(nn.Module):
    """An LSTM of two layers whose state comes in and goes out."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.lstm = nn.LSTM(6, 5, num_layers=2, batch_first=True)

    def forward(self, x: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        y, (h, c) = self.lstm(x, (h, c))
        return y, h, c


class Variadic(nn.Module):
    """Takes what comes."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.linear = nn.Linear(6, 4)

    def forward(self, *args: Tensor) -> Tensor:
        return torch.as_tensor(self.linear(args[0]) + args[1])


class ByName(nn.Module):
    """Takes one input by name only."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.linear = nn.Linear(6, 4)

    def forward(self, x: Tensor, mask: Tensor | None = None, *, scale: Tensor) -> Tensor:
        assert mask is None
        return torch.as_tensor(self.linear(x) * scale)


class Masked(nn.Module):
    """Causal attention, its mask a buffer of infinities."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.linear = nn.Linear(6, 6)
        self.register_buffer("mask", torch.triu(torch.full((6, 6), float("-inf")), 1))

    def forward(self, x: Tensor) -> Tensor:
        y = self.linear(x)
        return torch.softmax(y.unsqueeze(1) * y.unsqueeze(2) + self.get_buffer("mask"), -1)


class Tied(nn.Module):
    """Embeddings that serve as the output's weights too."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embedding = nn.Embedding(10, 4)
        self.out = nn.Linear(4, 10, bias=False)
        self.out.weight = self.embedding.weight

    def forward(self, ids: Tensor) -> Tensor:
        return torch.as_tensor(self.out(self.embedding(ids)))


class Mean(nn.Module):
    """Has no weights."""

    def forward(self, x: Tensor) -> Tensor:
        return x.mean(1, keepdim=True)


class Repeating(nn.Module):
    """A loop whose end is a value: as TorchScript it has no program."""

    def forward(self, x: Tensor) -> Tensor:
        while bool(x.sum() < 3):
            x = x * 2
        return x


class Counting(nn.Module):
    """Counts its calls in a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        calls = self.get_buffer("calls")
        calls.add_(1.0)
        return x + calls


class Remembering(nn.Module):
    """Counts its calls in an attribute."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        return x + self.calls


def spec(
    module: nn.Module,
    outputs: tuple[str, ...] = ("y",),
    inputs: tuple[Input, ...] = ROWS,
    axes: dict[str, Axis] | None = None,
    dtype: str = "float32",
) -> ModelSpec:
    return ModelSpec(
        name="theirs",
        module=module.eval(),
        inputs=inputs,
        outputs=tuple(Output(name, dtype=dtype) for name in outputs),
        axes=BATCH if axes is None else axes,
    )


def of_rows(
    name: str, module: nn.Module, *sizes: int, batch: int = 8, low: float = 0.0, high: float = 1.0, factory: str = ""
) -> ModelSpec:
    """A model of x [batch, *sizes] -> y; a module in training mode is set to evaluate."""
    inputs = (Input("x", ("batch", *sizes), low=low, high=high),)
    return ModelSpec(name, module.eval(), inputs, (Output("y"),), {"batch": Axis(1, 1, batch)}, factory)


def number() -> ModelSpec:
    return spec(Formula(lambda linear, x: (linear(x), linear(x).mean())), ("y", "mean"))


def bfloat16() -> ModelSpec:
    return spec(Formula(lambda linear, x: linear(x)).to(torch.bfloat16))


def float16() -> ModelSpec:
    return spec(Formula(lambda linear, x: linear(x)).half())


def casting() -> ModelSpec:
    return spec(Formula(lambda linear, x: linear(x.to(torch.bfloat16)).float()).to(torch.bfloat16))


def recurrent() -> ModelSpec:
    state = tuple(Input(name, (2, "batch", 5), low=-1.0) for name in ("h", "c"))
    return spec(Recurrent(), ("y", "h_out", "c_out"), (Input("x", ("batch", 2, 6)), *state))


def one_image() -> ModelSpec:
    return spec(nn.Conv2d(3, 4, 3), inputs=(Input("x", (1, 3, 16, 16), kind="image"),), axes={})


def batch_of_one() -> ModelSpec:
    return spec(Formula(lambda linear, x: linear(x)), axes={"batch": Axis(1, 1, 1)})


def batch_of_four() -> ModelSpec:
    return spec(Formula(lambda linear, x: linear(x).reshape(4, 4)), axes={"batch": Axis(4, 4, 4)})


def float32_inside() -> ModelSpec:
    return spec(Formula(lambda linear, x: linear(x) @ torch.ones(4, 2)))


def without_parameters() -> ModelSpec:
    return spec(Mean())


def dictionary() -> ModelSpec:
    """The declared order is not the dictionary's, and one entry is not declared."""
    return spec(Formula(lambda linear, x: {"more": x, "logits": linear(x), "pooled": x.mean(1)}), ("pooled", "logits"))


def record() -> ModelSpec:
    wanted = ("logits", "others_0", "others_1")
    return spec(Formula(lambda linear, x: Answer(linear(x), others=(x * 2, x * 3))), wanted)


def any_arguments() -> ModelSpec:
    return spec(Variadic(), inputs=(*ROWS, Input("added", ("batch", 4))))


def keyword_only() -> ModelSpec:
    return spec(ByName(), inputs=(*ROWS, Input("scale", ("batch", 4))))


def infinities() -> ModelSpec:
    return spec(Masked())


def tied() -> ModelSpec:
    return spec(Tied(), inputs=IDS)


def yes_or_no() -> ModelSpec:
    return spec(Formula(lambda linear, x: linear(x) > 0), dtype="bool")


def video() -> ModelSpec:
    return spec(nn.Conv3d(3, 4, 3), inputs=(Input("clip", ("batch", 3, 4, 8, 8)),))


def in_place() -> ModelSpec:
    return spec(Formula(lambda linear, x: linear(x.add_(1.0))))


def counting() -> ModelSpec:
    return spec(Counting())


def counting_in_torchscript() -> ModelSpec:
    with warnings.catch_warnings(action="ignore"):
        return spec(torch.jit.trace(Counting().eval(), torch.ones(1, 6), check_trace=False))  # type: ignore[no-untyped-call]


def remembering() -> ModelSpec:
    return spec(Remembering())


def random_numbers() -> ModelSpec:
    return spec(Formula(lambda linear, x: linear(x) + torch.rand(4)))


def complex_numbers() -> ModelSpec:
    return spec(Formula(lambda linear, x: torch.fft.fft(linear(x))))


def text() -> ModelSpec:
    return spec(Formula(lambda linear, x: {"y": linear(x), "label": "cat"}))


def other_outputs() -> ModelSpec:
    return spec(Formula(lambda linear, x: {"logits": linear(x), "pooled": x.mean(1)}), ("scores",))


def vocabulary() -> ModelSpec:
    return spec(Tied(), inputs=(Input("ids", ("batch", 5), dtype="int64", low=0, high=99),))


def odd_minimum() -> ModelSpec:
    return spec(Mean(), axes={"batch": Axis(4, 3, 8, 2)})


def no_name() -> ModelSpec:
    return replace(spec(Mean()), name="a b/c")


def no_tensor_name() -> ModelSpec:
    return spec(Mean(), ("the answer",))


def same_name_twice() -> ModelSpec:
    return spec(Mean(), ("x",))


def without_translation() -> ModelSpec:
    """Singular values: PyTorch's ONNX exporter knows none."""
    return spec(Formula(lambda linear, x: torch.linalg.svdvals(linear(x))))


class Backwards(nn.Module):
    """A net of pictures in BGR, channels last, less their mean: as OpenCV and Caffe have them."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3, stride=2)

    def forward(self, images: Tensor) -> dict[str, Tensor]:
        return {"logits": self.conv(images.permute(0, 3, 1, 2)).mean((2, 3))}


BGR_MEAN, BGR_DEVIATION = (103.5, 116.3, 123.7), (57.4, 57.1, 58.4)
"""Of blue, green and red, in bytes."""


def backwards() -> ModelSpec:
    """`Backwards`, whose input says what it wants."""
    torch.manual_seed(0)
    shape = ("batch", "height", 24, 3)
    image = Input(
        "images",
        shape,
        high=255.0,
        kind="image",
        fit="crop",
        mean=BGR_MEAN,
        std=BGR_DEVIATION,
        channels="BGR",
        layout="NHWC",
    )
    axes = {"batch": Axis(1, 1, 3), "height": Axis(16, 16, 32, 8)}
    return ModelSpec("backwards", Backwards().eval(), (image,), (Output("logits", role="logits"),), axes)
