"""Complex numbers of a captured graph as pairs of real ones: the same answers, and what is left as it is."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from edgekit.model.complex_numbers import with_real_numbers
from edgekit.model.graph import capture
from edgekit.model.spec import Axis, Input, ModelSpec, Output


class Turns(nn.Module):
    """Rows of 8 numbers as 4 complex ones, turned by a table, through a formula."""

    def __init__(self, formula: Callable[[Tensor, Tensor], Tensor]) -> None:
        super().__init__()
        self.formula = formula
        angles = torch.outer(torch.arange(6.0), 1 / 10 ** torch.arange(0, 1, 0.25))
        self.register_buffer("table", torch.polar(torch.ones_like(angles), angles))
        self.scale = nn.Parameter(torch.tensor([1 + 2j, 2 - 1j, 0.5j, 1.0]))

    def forward(self, x: Tensor) -> Tensor:
        turned = torch.view_as_complex(x.reshape(*x.shape[:-1], 4, 2))
        return self.formula(turned * self.scale, self.get_buffer("table")[: x.shape[1]])


def spec(formula: Callable[[Tensor, Tensor], Tensor]) -> ModelSpec:
    axes = {"batch": Axis(1, 1, 3), "length": Axis(4, 1, 6)}
    return ModelSpec(
        "turns", Turns(formula).eval(), (Input("x", ("batch", "length", 8), low=-1),), (Output("y"),), axes
    )


@pytest.mark.parametrize(
    "formula",
    [
        lambda x, table: torch.view_as_real(x * table).flatten(-2),
        lambda x, table: torch.view_as_real((x.unsqueeze(-1) * table[:, :, None].conj()).squeeze(-1)),
        lambda x, table: (x.transpose(1, 2) / table.T).abs(),
        lambda x, table: torch.cat([x, table.expand(x.shape[0], -1, -1)], -1).permute(0, 2, 1).real,
        lambda x, table: (x - table.real + torch.complex(table.imag, table.real)).imag + (-x[:, :, 1:2]).real,
        lambda x, table: (x * x + x).flatten(1).reshape(x.shape[0], -1, 2).select(-1, 1).real * 2.0,
        lambda x, table: torch.view_as_real(torch.polar(x.abs(), x.real) * x.imag * 0.5),
    ],
)
def test_pairs_answer_as_complex_numbers_do(formula: Callable[[Tensor, Tensor], Tensor]) -> None:
    program = capture(spec(formula))  # held against the module at every shape
    values = [node.meta.get("val") for node in program.exported.graph.nodes]
    assert not any(isinstance(value, Tensor) and value.is_complex() for value in values)
    assert not any(tensor.is_complex() for tensor in program.exported.state_dict.values())


@pytest.mark.parametrize(
    "formula",
    [
        lambda x, table: torch.fft.ifft(x * table).real,
        lambda x, table: (x + 1.0).real,
        lambda x, table: (x * 1j).real,
    ],
)
def test_what_is_not_known_is_left(formula: Callable[[Tensor, Tensor], Tensor]) -> None:
    exported = torch.export.export(spec(formula).module, (torch.rand(2, 4, 8),), strict=False)
    assert with_real_numbers(exported) is None


def test_a_program_without_complex_numbers_is_left() -> None:
    exported = torch.export.export(nn.Linear(2, 2).eval(), (torch.rand(2, 2),), strict=False)
    assert with_real_numbers(exported) is None
