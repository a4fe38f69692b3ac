"""Complex numbers of a captured graph as pairs of real ones: the same answers, and what is left as it is."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

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


def written(x: Tensor) -> Tensor:
    """Parts that are written into zeros, and one that is changed afterwards."""
    zeros = torch.zeros(x.shape[0], x.shape[1], 6, dtype=x.dtype)
    zeros[:, :, 1:3] = x[:, :, :2]
    zeros[:, :, -1] = x[:, :, 0]
    zeros[:, :, 2:4] *= 2j
    return zeros


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
        lambda x, table: torch.view_as_real((x + 1.0 - 2j) * (1 + 0.5j) - 0.5 * x).flatten(-2),
        lambda x, table: torch.view_as_real(torch.einsum("blc,bmc,c->blm", x, x.conj(), table[0])),
        lambda x, table: torch.view_as_real(x @ x.transpose(1, 2) @ table.real.to(x.dtype)),
        lambda x, table: torch.view_as_real(nn.functional.linear(x, table[:1].expand(3, 4), table[0, :3])),
        lambda x, table: (
            torch.view_as_real(torch.stack([x, x * x, x.conj()], -2).sum(-2)) + x.mean(-1, True).angle()[..., None]
        ),
        lambda x, table: torch.view_as_real(x.real.to(x.dtype) + torch.exp(x * 1j)),
        lambda x, table: torch.view_as_real(functional.pad(x, (1, 0, 0, 2)) * 2),
        lambda x, table: torch.view_as_real(written(x)),
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
        lambda x, table: torch.fft.ifft(x * table, dim=1).real,  # along an open axis
        lambda x, table: torch.fft.fft(x, n=1 << 20).real,  # too large a table
        lambda x, table: functional.pad(x, (1, 0), value=1.0).real,
        lambda x, table: x.tan().real,
        lambda x, table: x.to(torch.float32),
    ],
)
def test_what_is_not_known_is_left(formula: Callable[[Tensor, Tensor], Tensor]) -> None:
    shapes = ({0: torch.export.Dim.DYNAMIC, 1: torch.export.Dim.DYNAMIC},)
    exported = torch.export.export(spec(formula).module, (torch.rand(2, 4, 8),), dynamic_shapes=shapes, strict=False)
    assert with_real_numbers(exported) is None


def test_a_program_without_complex_numbers_is_left() -> None:
    exported = torch.export.export(nn.Linear(2, 2).eval(), (torch.rand(2, 2),), strict=False)
    assert with_real_numbers(exported) is None
