"""Element-wise operators and activations, from disk, against PyTorch in fp64 and coremltools' own value inference."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from mil_interpreter.operators.arithmetic import erf, erfc
from mil_interpreter.records import Array

F = torch.nn.functional
Torch = Callable[..., Any]
DTYPES = pytest.mark.parametrize("dtype", ["fp32", "fp16"])
EXAMPLES = settings(max_examples=5, deadline=None)
SHAPES = st.lists(st.integers(1, 5), min_size=1, max_size=4)
SEEDS = st.integers(0, 2**31)


def uniform(seed: int, shape: list[int], low: float = -3, high: float = 3) -> Array:
    return np.random.default_rng(seed).uniform(low, high, shape).astype(np.float32)


def whole(seed: int, shape: list[int], low: int = -9, high: int = 9) -> Array:
    return np.random.default_rng(seed).integers(low, high, shape, dtype=np.int32)


UNARY: dict[str, tuple[Torch, float, float]] = {
    "abs": (torch.abs, -3, 3),
    "acos": (torch.acos, -0.99, 0.99),
    "asin": (torch.asin, -0.99, 0.99),
    "atan": (torch.atan, -3, 3),
    "atanh": (torch.atanh, -0.9, 0.9),
    "ceil": (torch.ceil, -3, 3),
    "cos": (torch.cos, -3, 3),
    "cosh": (torch.cosh, -3, 3),
    "erf": (torch.erf, -6, 6),
    "exp": (torch.exp, -3, 3),
    "exp2": (torch.exp2, -3, 3),
    "floor": (torch.floor, -3, 3),
    "relu": (F.relu, -3, 3),
    "relu6": (F.relu6, -3, 9),
    "round": (torch.round, -3, 3),
    "sigmoid": (torch.sigmoid, -30, 30),
    "sign": (torch.sign, -3, 3),
    "silu": (F.silu, -9, 9),
    "sin": (torch.sin, -3, 3),
    "sinh": (torch.sinh, -3, 3),
    "softplus": (F.softplus, -30, 30),
    "softsign": (F.softsign, -9, 9),
    "sqrt": (torch.sqrt, 0, 9),
    "square": (torch.square, -3, 3),
    "tan": (torch.tan, -1.2, 1.2),
    "tanh": (torch.tanh, -9, 9),
}


@pytest.mark.parametrize("name", UNARY)
@EXAMPLES
@given(shape=SHAPES, seed=SEEDS)
def test_unary(saved: Any, name: str, shape: list[int], seed: int) -> None:
    function, low, high = UNARY[name]
    saved.check_both(name, {"x": uniform(seed, shape, low, high)}, function)


WITH_PARAMETERS: dict[str, tuple[dict[str, float], Torch, float, float]] = {
    "clamped_relu": (
        {"alpha": 0.5, "beta": 1.5},
        lambda x: torch.minimum(torch.where(x >= 0, x, 0.5 * x), _like(x, 1.5)),
        -3,
        3,
    ),
    "clip": ({"alpha": -1.5, "beta": 0.75}, lambda x: x.clamp(-1.5, 0.75), -3, 3),
    "elu": ({"alpha": 0.5}, lambda x: F.elu(x, 0.5), -3, 3),
    "inverse": ({"epsilon": 0.125}, lambda x: 1 / (x + 0.125), 0.5, 3),
    "leaky_relu": ({"alpha": 0.25}, lambda x: F.leaky_relu(x, 0.25), -3, 3),
    "linear_activation": ({"alpha": 0.5, "beta": -2.0}, lambda x: 0.5 * x - 2, -3, 3),
    "log": ({"epsilon": 0.0625}, lambda x: torch.log(x + 0.0625), 0, 3),
    "rsqrt": ({"epsilon": 0.25}, lambda x: (x + 0.25).rsqrt(), 0, 3),
    "scaled_tanh": ({"alpha": 2.0, "beta": 0.5}, lambda x: 2 * torch.tanh(0.5 * x), -3, 3),
    "sigmoid_hard": ({"alpha": 0.25, "beta": 0.5}, lambda x: (0.25 * x + 0.5).clamp(0, 1), -3, 3),
    "threshold": ({"alpha": 0.5}, lambda x: x.clamp(min=0.5), -3, 3),
    "thresholded_relu": ({"alpha": 0.5}, lambda x: torch.where(x >= 0.5, x, 0.0), -3, 3),
}


def _like(x: torch.Tensor, value: float) -> torch.Tensor:
    return torch.full_like(x, value)


@pytest.mark.parametrize("name", WITH_PARAMETERS)
@EXAMPLES
@given(shape=SHAPES, seed=SEEDS)
def test_with_parameters(saved: Any, name: str, shape: list[int], seed: int) -> None:
    parameters, function, low, high = WITH_PARAMETERS[name]
    saved.check_both(name, {"x": uniform(seed, shape, low, high)}, function, parameters)


GELU = {"EXACT": "none", "TANH_APPROXIMATION": "tanh"}


@pytest.mark.parametrize("mode", GELU)
@EXAMPLES
@example(shape=[1], seed=501000476)  # 1 + erf cancels there: -6.6e-7 in place of -1.6e-7
@given(shape=SHAPES, seed=SEEDS)
def test_gelu(saved: Any, mode: str, shape: list[int], seed: int) -> None:
    inputs = {"x": uniform(seed, shape, -6, 6)}
    saved.check_both("gelu", inputs, lambda x: F.gelu(x, approximate=GELU[mode]), {"mode": mode})


def test_gelu_by_sigmoid(saved: Any) -> None:
    saved.check(
        "gelu", {"x": uniform(0, [4, 5])}, lambda x: x * torch.sigmoid(1.702 * x), {"mode": "SIGMOID_APPROXIMATION"}
    )


@pytest.mark.parametrize("name", ["prelu", "softplus_parametric"])
@EXAMPLES
@given(channels=st.integers(1, 4), size=st.integers(1, 4), seed=SEEDS)
def test_per_channel(saved: Any, name: str, channels: int, size: int, seed: int) -> None:
    alpha = np.float32(2.0 ** -np.arange(1, channels + 1))
    per = torch.from_numpy(alpha.astype(np.float64)).reshape(-1, 1, 1)
    prelu = name == "prelu"
    saved.check_both(
        name,
        {"x": uniform(seed, [2, channels, size, 3])},
        (lambda x: torch.where(x > 0, x, per * x)) if prelu else (lambda x: per * F.softplus(2 * per * x)),
        {"alpha": alpha} if prelu else {"alpha": alpha, "beta": 2 * alpha},
    )


@EXAMPLES
@given(shape=SHAPES, seed=SEEDS, data=st.data())
def test_softmax(saved: Any, shape: list[int], seed: int, data: st.DataObject) -> None:
    axis = data.draw(st.integers(-len(shape), len(shape) - 1))
    x = uniform(seed, shape, -60, 60)  # exp of the unshifted values would overflow fp16
    saved.check_both("softmax", {"x": x}, lambda t: t.softmax(axis), {"axis": axis})


BINARY: dict[str, Torch] = {
    "add": torch.add,
    "equal": torch.eq,
    "floor_div": torch.floor_divide,
    "greater": torch.gt,
    "greater_equal": torch.ge,
    "less": torch.lt,
    "less_equal": torch.le,
    "maximum": torch.maximum,
    "minimum": torch.minimum,
    "mod": torch.remainder,
    "mul": torch.mul,
    "not_equal": torch.ne,
    "real_div": torch.div,
    "sub": torch.sub,
}


@pytest.mark.parametrize("name", BINARY)
@EXAMPLES
@given(shape=SHAPES, seed=SEEDS, data=st.data())
def test_binary(saved: Any, name: str, shape: list[int], seed: int, data: st.DataObject) -> None:
    other = [n if data.draw(st.booleans()) else 1 for n in shape]  # broadcasts
    x, y = whole(seed, shape), whole(seed + 1, other, 1)
    saved.check_both(name, {"x": x * np.float32(0.25), "y": y * np.float32(0.5)}, BINARY[name])
    if name != "real_div":
        saved.check(name, {"x": x, "y": y}, BINARY[name])


@EXAMPLES
@given(shape=SHAPES, seed=SEEDS)
def test_pow(saved: Any, shape: list[int], seed: int) -> None:
    saved.check_both("pow", {"x": uniform(seed, shape, 0.1, 3), "y": uniform(seed + 1, shape, -2, 2)}, torch.pow)


@pytest.mark.parametrize("name", ["logical_and", "logical_or", "logical_xor"])
@EXAMPLES
@given(shape=SHAPES, seed=SEEDS)
def test_logical(saved: Any, name: str, shape: list[int], seed: int) -> None:
    x, y = whole(seed, shape) > 0, whole(seed + 1, shape) > 0
    saved.check(name, {"x": x, "y": y}, getattr(torch, name))


def test_logical_not(saved: Any) -> None:
    saved.check("logical_not", {"x": np.array([[True, False]])}, torch.logical_not)


@EXAMPLES
@given(shape=SHAPES, seed=SEEDS)
def test_select(saved: Any, shape: list[int], seed: int) -> None:
    inputs = {"cond": whole(seed, shape) > 0, "a": uniform(seed, shape), "b": uniform(seed + 1, shape)}
    saved.check_both("select", inputs, torch.where)


@pytest.mark.parametrize("to", ["fp32", "int32", "bool", "fp16"])
@DTYPES
@EXAMPLES
@given(shape=SHAPES, seed=SEEDS)
def test_cast(saved: Any, to: str, dtype: str, shape: list[int], seed: int) -> None:
    x = uniform(seed, shape, -9, 9)
    kinds = {"fp32": torch.float64, "int32": torch.int32, "bool": torch.bool, "fp16": torch.float64}
    saved.check("cast", {"x": x}, lambda t: t.to(kinds[to]), {"dtype": to}, "fp16" if to == "fp16" else dtype)


def test_fp16_overflow_is_infinite_and_not_an_error(saved: Any) -> None:
    saved.check("square", {"x": np.array([300, -300, 2], np.float32)}, torch.square, dtype="fp16")


def test_erf_is_as_good_as_fp32() -> None:
    x = np.linspace(-6, 6, 20001, dtype=np.float32)
    assert np.max(np.abs(erf(x) - [math.erf(v) for v in x])) < 5e-7


def test_erfc_is_exact_where_it_is_small() -> None:
    x = np.linspace(-6, 9, 20001, dtype=np.float32)
    right = np.array([math.erfc(v) for v in x])
    assert np.max(np.abs(erfc(x) - right) / right) < 1e-6
