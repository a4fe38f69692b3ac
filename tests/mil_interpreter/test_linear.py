"""Matrix products, normalisations and reductions, from disk, against PyTorch in fp64."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.mil_interpreter.programs import builder as mb
from tests.mil_interpreter.programs import normal

F = torch.nn.functional
DTYPES = pytest.mark.parametrize("dtype", ["fp32", "fp16"])
EXAMPLES = settings(max_examples=5, deadline=None)
SIZES = st.integers(1, 6)
SEEDS = st.integers(0, 2**31)
SHAPES = st.lists(st.integers(1, 5), min_size=1, max_size=4)


@pytest.mark.parametrize("bias", [False, True])
@EXAMPLES
@given(lead=st.lists(SIZES, max_size=2), into=SIZES, out=SIZES, seed=SEEDS)
def test_linear(saved: Any, bias: bool, lead: list[int], into: int, out: int, seed: int) -> None:
    weight = normal(seed + 1, out, into).astype(np.float16).astype(np.float32)
    fixed = {"weight": weight} | ({"bias": weight[:, 0].copy()} if bias else {})
    w, b = torch.from_numpy(weight).double(), torch.from_numpy(weight[:, 0].copy()).double() if bias else None
    saved.check_both("linear", {"x": normal(seed, *lead, 2, into)}, lambda x: F.linear(x, w, b), fixed)


@EXAMPLES
@given(lead=st.lists(SIZES, max_size=2), m=SIZES, k=SIZES, n=SIZES, flip=st.tuples(*[st.booleans()] * 2), seed=SEEDS)
def test_matmul(saved: Any, lead: list[int], m: int, k: int, n: int, flip: tuple[bool, bool], seed: int) -> None:
    x = normal(seed, *lead, *((k, m) if flip[0] else (m, k)))
    y = normal(seed + 1, *((n, k) if flip[1] else (k, n)))

    def right(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return (a.mT if flip[0] else a) @ (b.mT if flip[1] else b)

    flags = {"transpose_x": flip[0], "transpose_y": flip[1]}
    saved.check_both("matmul", {"x": x, "y": y}, right, flags)


@DTYPES
@pytest.mark.parametrize(
    ("equation", "left", "right"),
    [
        ("abcd,adce->abce", (2, 3, 4, 5), (2, 5, 4, 3)),
        ("nchw,nwhu->nchu", (1, 3, 2, 5), (1, 5, 2, 4)),
        ("chw,whu->chu", (3, 2, 5), (5, 2, 4)),
    ],
)
def test_einsum(saved: Any, dtype: str, equation: str, left: tuple[int, ...], right: tuple[int, ...]) -> None:
    x, y = (normal(i, *s).astype(np.float16).astype(np.float32) for i, s in enumerate((left, right)))
    got = saved.run({"x": x, "y": y}, lambda v: mb.einsum(values=(v["x"], v["y"]), equation=equation), dtype)[0]
    want = torch.einsum(equation, torch.from_numpy(x).double(), torch.from_numpy(y).double()).numpy()
    step = 2.0**-10 if dtype == "fp16" else 1e-5
    assert np.max(np.abs(got - want) - step * np.abs(want)) <= 1e-4 * (dtype == "fp16") + 1e-6


@pytest.mark.parametrize("mask", [None, "bool", "float"])
@EXAMPLES
@given(length=SIZES, keys=SIZES, width=SIZES, seed=SEEDS)
def test_attention(saved: Any, mask: str | None, length: int, keys: int, width: int, seed: int) -> None:
    inputs = {
        n: normal(seed + i, 2, 3, m, width)
        for i, (n, m) in enumerate((("query", length), ("key", keys), ("value", keys)))
    }
    if mask:
        scores = normal(seed + 9, length, keys)
        inputs["attn_mask"] = scores if mask == "float" else (scores > 0) | (np.arange(keys) == 0)
    saved.check_both("scaled_dot_product_attention", inputs, F.scaled_dot_product_attention, ios=18)


@EXAMPLES
@given(shape=st.lists(st.integers(2, 5), min_size=2, max_size=4), seed=SEEDS, affine=st.booleans(), data=st.data())
def test_layer_norm(saved: Any, shape: list[int], seed: int, affine: bool, data: st.DataObject) -> None:
    count = data.draw(st.integers(1, len(shape)))
    over = shape[-count:]
    gamma = normal(seed + 1, *over).astype(np.float16).astype(np.float32)
    fixed: dict[str, Any] = {"axes": list(range(-count, 0)), "epsilon": 2.0**-10}
    fixed |= {"gamma": gamma, "beta": gamma[::-1].copy()} if affine else {}
    g, b = (torch.from_numpy(v).double() if affine else None for v in (gamma, gamma[::-1].copy()))
    x = normal(seed, *shape) * 100  # squares of such values overflow fp16: the operator must not be taken apart
    saved.check_both("layer_norm", {"x": x}, lambda t: F.layer_norm(t, over, g, b, 2.0**-10), fixed)


@EXAMPLES
@given(channels=SIZES, rank=st.integers(1, 3), seed=SEEDS, affine=st.booleans())
def test_batch_norm(saved: Any, channels: int, rank: int, seed: int, affine: bool) -> None:
    mean, gamma, beta = (normal(seed + i, channels).astype(np.float16).astype(np.float32) for i in (1, 2, 3))
    variance = (np.square(mean) + 0.5).astype(np.float16).astype(np.float32)
    fixed = {"mean": mean, "variance": variance, "epsilon": 2.0**-10} | (
        {"gamma": gamma, "beta": beta} if affine else {}
    )
    m, v, g, b = (torch.from_numpy(a).double() for a in (mean, variance, gamma, beta))
    saved.check_both(
        "batch_norm",
        {"x": normal(seed, 2, channels, *[3] * rank)},
        lambda x: F.batch_norm(x, m, v, g if affine else None, b if affine else None, eps=2.0**-10),
        fixed,
        tolerance=2e-5,  # a variance near 0.5 doubles what a rounding of x - mean makes
    )


@EXAMPLES
@given(channels=SIZES, height=st.integers(2, 5), seed=SEEDS)
def test_instance_norm(saved: Any, channels: int, height: int, seed: int) -> None:
    gamma = normal(seed + 1, channels).astype(np.float16).astype(np.float32)
    g = torch.from_numpy(gamma).double()
    saved.check_both(
        "instance_norm",
        {"x": normal(seed, 2, channels, height, 4)},
        lambda x: F.instance_norm(x, weight=g, bias=-g, eps=2.0**-10),
        {"gamma": gamma, "beta": -gamma, "epsilon": 2.0**-10},
    )


@EXAMPLES
@given(shape=st.lists(SIZES, min_size=3, max_size=4), seed=SEEDS)
def test_l2_norm(saved: Any, shape: list[int], seed: int) -> None:
    def right(x: torch.Tensor) -> torch.Tensor:
        return x / (x.square().sum((-3, -2, -1), keepdim=True) + 2.0**-10).sqrt()

    saved.check_both("l2_norm", {"x": normal(seed, *shape)}, right, {"epsilon": 2.0**-10})


@EXAMPLES
@given(channels=st.integers(1, 7), size=st.integers(1, 5), seed=SEEDS)
def test_local_response_norm(saved: Any, channels: int, size: int, seed: int) -> None:
    saved.check_both(
        "local_response_norm",
        {"x": normal(seed, 2, channels, 3, 2)},
        lambda x: F.local_response_norm(x, size, 0.5, 0.75, 2.0),
        {"size": size, "alpha": 0.5, "beta": 0.75, "k": 2.0},
    )


REDUCTIONS: dict[str, Callable[[torch.Tensor, list[int], bool], torch.Tensor]] = {
    "reduce_l1_norm": lambda x, d, k: x.abs().sum(d, keepdim=k),
    "reduce_l2_norm": lambda x, d, k: x.square().sum(d, keepdim=k).sqrt(),
    "reduce_log_sum": lambda x, d, k: x.sum(d, keepdim=k).log(),
    "reduce_log_sum_exp": lambda x, d, k: x.logsumexp(d, keepdim=k),
    "reduce_max": lambda x, d, k: x.amax(d, keepdim=k),
    "reduce_mean": lambda x, d, k: x.mean(d, keepdim=k),
    "reduce_min": lambda x, d, k: x.amin(d, keepdim=k),
    "reduce_sum": lambda x, d, k: x.sum(d, keepdim=k),
    "reduce_sum_square": lambda x, d, k: x.square().sum(d, keepdim=k),
}


@pytest.mark.parametrize("name", REDUCTIONS)
@EXAMPLES
@given(shape=SHAPES, seed=SEEDS, keep=st.booleans(), data=st.data())
def test_reductions(saved: Any, name: str, shape: list[int], seed: int, keep: bool, data: st.DataObject) -> None:
    over = data.draw(st.lists(st.integers(0, len(shape) - 1), min_size=1, max_size=len(shape), unique=True))
    x = np.abs(normal(seed, *shape)) + 0.5
    right = REDUCTIONS[name]
    saved.check_both(name, {"x": x}, lambda t: right(t, over, keep), {"axes": over, "keep_dims": keep})


@EXAMPLES
@given(shape=SHAPES, seed=SEEDS, keep=st.booleans(), data=st.data())
def test_reduce_prod(saved: Any, shape: list[int], seed: int, keep: bool, data: st.DataObject) -> None:
    axis = data.draw(st.integers(0, len(shape) - 1))
    x = np.abs(normal(seed, *shape)) + 0.5
    saved.check("reduce_prod", {"x": x}, lambda t: t.prod(axis, keepdim=keep), {"axes": [axis], "keep_dims": keep})


@pytest.mark.parametrize("name", ["reduce_argmax", "reduce_argmin"])
@EXAMPLES
@given(shape=SHAPES, seed=SEEDS, keep=st.booleans(), data=st.data())
def test_arg_reductions_take_the_first_of_equal_values(
    saved: Any, name: str, shape: list[int], seed: int, keep: bool, data: st.DataObject
) -> None:
    axis = data.draw(st.integers(0, len(shape) - 1))
    x = np.round(normal(seed, *shape))  # many ties
    first = np.argmax(x if name == "reduce_argmax" else -x, axis=axis, keepdims=keep)
    saved.check_both(name, {"x": x}, lambda t: torch.from_numpy(np.asarray(first)), {"axis": axis, "keep_dims": keep})


@pytest.mark.parametrize("exclusive", [False, True])
@pytest.mark.parametrize("reverse", [False, True])
@EXAMPLES
@given(shape=SHAPES, seed=SEEDS, data=st.data())
def test_cumsum(saved: Any, exclusive: bool, reverse: bool, shape: list[int], seed: int, data: st.DataObject) -> None:
    axis = data.draw(st.integers(0, len(shape) - 1))

    def right(x: torch.Tensor) -> torch.Tensor:
        turned = x.flip(axis) if reverse else x
        total = turned.cumsum(axis) - (turned if exclusive else 0)
        return total.flip(axis) if reverse else total

    x = np.round(normal(seed, *shape) * 4)  # whole numbers: fp16 then rounds no partial sum
    saved.check_both("cumsum", {"x": x}, right, {"axis": axis, "exclusive": exclusive, "reverse": reverse})
