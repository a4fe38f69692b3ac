"""Fourier transforms as products: the same numbers as in double precision, and no more products than are read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from edgekit.model.complex_numbers import with_real_numbers
from edgekit.model.graph import quiet
from edgekit.model.spec import Array

TOLERANCE = 2e-6  # of the largest value: float32, with tables that are rounded from double precision
BATCH = ({0: torch.export.Dim.DYNAMIC},)


def real(formula: Callable[..., Tensor], x: Tensor, *weights: int) -> torch.export.ExportedProgram:
    """A formula's program with open batch, without complex numbers."""
    with quiet():
        exported = torch.export.export(Spectral(formula, *weights).eval(), (x,), dynamic_shapes=BATCH, strict=False)
        module = with_real_numbers(exported)
        assert module is not None
        program = torch.export.export(module, (x,), dynamic_shapes=BATCH, strict=False)
    values = [node.meta.get("val") for node in program.graph.nodes]
    assert not any(isinstance(value, Tensor) and value.is_complex() for value in values)
    return program


def check(program: torch.export.ExportedProgram, batch: Tensor, expected: Array) -> None:
    with torch.no_grad():
        got = program.module()(batch)
    assert tuple(got.shape) == expected.shape
    np.testing.assert_allclose(got.numpy(), expected, atol=TOLERANCE * np.abs(expected).max(), rtol=0)


class Spectral(nn.Module):
    """A formula of the input and of complex weights."""

    def __init__(self, formula: Callable[..., Tensor], *weights: int) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.formula = formula
        self.weight = nn.Parameter(torch.randn(weights, dtype=torch.complex64)) if weights else None

    def forward(self, x: Tensor) -> Tensor:
        return self.formula(x) if self.weight is None else self.formula(x, self.weight)


def once(x: Tensor, weight: Tensor) -> Tensor:
    """As the first Fourier neural operators are written, along a line."""
    low = torch.einsum("bix,iox->box", torch.fft.rfft(x)[:, :, :5], weight)
    out = torch.zeros(x.shape[0], 4, x.shape[-1] // 2 + 1, dtype=weight.dtype)
    out[:, :, :5] = low
    return torch.fft.irfft(out, n=x.shape[-1])  # type: ignore[no-any-return]


def twice(x: Tensor, weight: Tensor) -> Tensor:
    """The same on a plane: the lowest frequencies of one axis are at both of its ends."""
    found = torch.fft.rfft2(x, norm="ortho")
    out = torch.zeros(x.shape[0], 4, x.size(-2), x.size(-1) // 2 + 1, dtype=weight.dtype)
    out[:, :, :3, :5] = torch.einsum("bixy,ioxy->boxy", found[:, :, :3, :5], weight)
    out[:, :, -3:, :5] = torch.einsum("bixy,ioxy->boxy", found[:, :, -3:, :5], weight.conj())
    return torch.fft.irfft2(out, s=x.shape[-2:], norm="ortho")  # type: ignore[no-any-return]


def centred(x: Tensor, weight: Tensor) -> Tensor:
    """The same with the lowest frequencies in the middle, as neuraloperator has them."""
    found = torch.fft.fftshift(torch.fft.rfftn(x, dim=(-2, -1)), dim=(-2,))
    out, middle = torch.zeros(x.shape[0], 4, *found.shape[2:], dtype=weight.dtype), x.shape[-2] // 2
    found = found[:, :, middle - 1 : middle + 2, :5]
    out[:, :, middle - 1 : middle + 2, :5] = torch.einsum("bixy,ioxy->boxy", found, weight)
    return torch.fft.irfftn(torch.fft.ifftshift(out, dim=(-2,)), s=x.shape[-2:], dim=(-2, -1))  # type: ignore[no-any-return]


def padded(x: Tensor, weight: Tensor) -> Tensor:
    low = functional.pad(torch.einsum("bix,iox->box", torch.fft.rfft(x)[..., :5], weight), (0, x.shape[-1] // 2 - 4))
    return torch.fft.irfft(low, n=x.shape[-1])  # type: ignore[no-any-return]


def filtered(x: Tensor, weight: Tensor) -> Tensor:
    return torch.fft.irfft2(torch.fft.rfft2(x, dim=(1, 2)) * weight, s=x.shape[1:3], dim=(1, 2))  # type: ignore[no-any-return]


@pytest.mark.parametrize("norm", ["backward", "ortho", "forward"])
@pytest.mark.parametrize("length", [1, 2, 5, 16, 63, 100, 256, 1000])
def test_a_transform_is_as_numpy_s_in_double_precision(
    length: int, norm: Literal["backward", "ortho", "forward"]
) -> None:
    torch.manual_seed(length)
    x, batch = torch.rand(2, length) - 0.5, torch.rand(5, length) - 0.5
    double = batch.double().numpy()
    expected = np.fft.rfft(double, norm=norm)
    forth = real(lambda x: torch.view_as_real(torch.fft.rfft(x, norm=norm)), x)
    check(forth, batch, np.stack([expected.real, expected.imag], -1))
    back = real(lambda x: torch.fft.irfft(torch.fft.fft(x, norm=norm), n=length + 3, norm=norm), x)
    check(back, batch, np.fft.irfft(np.fft.fft(double, norm=norm), n=length + 3, norm=norm))


@pytest.mark.parametrize(
    ("formula", "shape", "weights"),
    [
        (once, (3, 64), (3, 4, 5)),
        (once, (3, 63), (3, 4, 5)),
        (once, (3, 8), (3, 4, 5)),  # all of the coefficients
        (twice, (3, 16, 15), (3, 4, 3, 5)),
        (twice, (3, 5, 8), (3, 4, 3, 5)),  # the second part overwrites a row of the first
        (centred, (3, 16, 15), (3, 4, 3, 5)),
        (centred, (3, 15, 16), (3, 4, 3, 5)),
        (padded, (3, 64), (3, 4, 5)),
        (filtered, (9, 8, 3), (9, 5, 3)),
    ],
)
def test_fourier_operators_answer_as_they_do(
    formula: Callable[..., Tensor], shape: tuple[int, ...], weights: tuple[int, ...]
) -> None:
    batch = torch.rand(5, *shape) - 0.5
    program = real(formula, torch.rand(2, *shape), *weights)
    weight = Spectral(formula, *weights).get_parameter("weight").detach().to(torch.complex128)
    check(program, batch, formula(batch.double(), weight).numpy())


@pytest.mark.parametrize(
    ("formula", "shape"),
    [
        (lambda x: torch.fft.fft(torch.fft.fft(x), dim=-2).real, (7, 8)),
        (lambda x: torch.fft.ifftn(torch.fft.fftshift(torch.fft.fft2(x)), dim=(1, 2)).real, (7, 8)),
        (lambda x: torch.fft.ifft2(torch.fft.ifftshift(torch.fft.fftn(x, s=(6, 9), dim=(1, 2)), (1,))).real, (7, 8)),
        (lambda x: torch.fft.irfft(torch.fft.rfft(x, n=32) * torch.fft.rfft(x[:, :1], n=32), n=32)[..., :16], (3, 16)),
        (lambda x: torch.fft.irfft(torch.fft.rfft(x) * torch.conj(torch.fft.rfft(x.flip(1)))), (3, 30)),
        (lambda x: torch.fft.irfft(torch.fft.rfft(x, n=6)[..., 1:3], n=9), (3, 8)),
        (lambda x: torch.fft.fft(x)[..., ::2].abs(), (3, 9)),
        (lambda x: torch.fft.rfft(x)[..., 1:3].angle().sin(), (3, 9)),
        (
            lambda x: torch.fft.irfft(
                torch.cat([torch.fft.rfft(x)[..., :3], torch.zeros_like(torch.fft.rfft(x))], -1), n=20
            ),
            (3, 12),
        ),
    ],
)
def test_transforms_of_other_kinds(formula: Callable[[Tensor], Tensor], shape: tuple[int, ...]) -> None:
    batch = torch.rand(5, *shape) - 0.5
    check(real(formula, torch.rand(2, *shape)), batch, formula(batch.double()).numpy())


@pytest.mark.parametrize(
    "options",
    [
        {"n_fft": 16, "window": torch.ones(16)},
        {"n_fft": 15, "hop_length": 4, "window": torch.hamming_window(15), "center": False, "normalized": True},
        {"n_fft": 16, "hop_length": 8, "win_length": 11, "window": torch.hann_window(11), "onesided": False},
        {"n_fft": 16, "win_length": 12, "window": torch.ones(12), "pad_mode": "constant"},
    ],
)
def test_spectrograms(options: dict[str, Any]) -> None:
    def spectrogram(x: Tensor) -> Tensor:
        window = options["window"].to(x.dtype)  # a constant of the capture, beside the tables
        return torch.stft(x, **{**options, "window": window}, return_complex=True).abs()

    batch = torch.rand(5, 50) - 0.5
    check(real(spectrogram, torch.rand(2, 50)), batch, spectrogram(batch.double()).numpy())


def test_no_more_is_multiplied_than_is_read() -> None:
    program = real(twice, torch.rand(2, 3, 64, 64), 3, 4, 3, 5)
    tables = sorted(tuple(table.shape) for table in program.constants.values())
    # 64 values to 5 coefficients of one axis and 3 + 3 of the other; 3 of each end back to 64, and 5 to 64
    assert tables == [(10, 64), (12, 128), (64, 10), (128, 6), (128, 6)]


def test_layers_share_their_tables() -> None:
    def layer(x: Tensor) -> Tensor:
        return torch.relu(torch.fft.irfft(torch.fft.rfft(x)))

    assert len(real(lambda x: layer(layer(x)), torch.rand(2, 16)).constants) == 2
