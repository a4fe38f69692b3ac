"""Convolutions, pooling and resizing, from disk, against PyTorch in fp64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from mil_interpreter.records import Array

F = torch.nn.functional
EXAMPLES = settings(max_examples=5, deadline=None)
SEEDS = st.integers(0, 2**31)
CONVS = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}
TRANSPOSES = {1: F.conv_transpose1d, 2: F.conv_transpose2d, 3: F.conv_transpose3d}
MAX_POOLS = {1: F.max_pool1d, 2: F.max_pool2d, 3: F.max_pool3d}
AVG_POOLS = {1: F.avg_pool1d, 2: F.avg_pool2d, 3: F.avg_pool3d}


def normal(seed: int, *shape: int) -> Array:
    """fp16 numbers, so that weights are stored exactly in both precisions."""
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float16).astype(np.float32)


def both(pads: list[int]) -> list[int]:
    return [p for p in pads for _ in range(2)]


@pytest.mark.parametrize("rank", [1, 2, 3])
@EXAMPLES
@given(data=st.data(), groups=st.integers(1, 3), each=st.integers(1, 3), out=st.integers(1, 2), seed=SEEDS)
def test_conv(saved: Any, rank: int, data: st.DataObject, groups: int, each: int, out: int, seed: int) -> None:
    axes = st.lists(st.integers(1, 3), min_size=rank, max_size=rank)
    kernel, strides, dilations = data.draw(axes), data.draw(axes), data.draw(axes)
    pads = data.draw(st.lists(st.integers(0, 2), min_size=rank, max_size=rank))
    sizes = [d * (k - 1) + 1 + data.draw(st.integers(0, 3)) for k, d in zip(kernel, dilations, strict=True)]
    weight, bias = normal(seed, groups * out, each, *kernel), normal(seed + 1, groups * out)
    w, b = torch.from_numpy(weight).double(), torch.from_numpy(bias).double()
    fixed = {
        "weight": weight,
        "bias": bias,
        "strides": strides,
        "dilations": dilations,
        "groups": groups,
        "pad_type": "custom",
        "pad": both(pads),
    }
    x = normal(seed + 2, 2, groups * each, *sizes)
    saved.check_both("conv", {"x": x}, lambda t: CONVS[rank](t, w, b, strides, pads, dilations, groups), fixed)


@pytest.mark.parametrize("pad_type", ["same", "same_lower", "valid"])
@EXAMPLES
@given(size=st.integers(3, 9), kernel=st.integers(1, 4), stride=st.integers(1, 3), seed=SEEDS)
def test_conv_padding_modes(saved: Any, pad_type: str, size: int, kernel: int, stride: int, seed: int) -> None:
    assume(pad_type != "valid" or size >= kernel)
    weight = normal(seed, 2, 3, kernel, 1)
    total = max(0, stride * -(-size // stride) - size + kernel - stride) if pad_type != "valid" else 0
    before = total // 2 if pad_type == "same" else total - total // 2

    def right(t: torch.Tensor) -> torch.Tensor:
        return F.conv2d(F.pad(t, [0, 0, before, total - before]), torch.from_numpy(weight).double(), stride=(stride, 1))

    fixed = {"weight": weight, "strides": [stride, 1], "pad_type": pad_type}
    saved.check("conv", {"x": normal(seed, 1, 3, size, 4)}, right, fixed)


def test_conv_of_a_large_image_goes_position_by_position(saved: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from mil_interpreter.operators import conv

    monkeypatch.setattr(conv, "COLUMNS_LIMIT", 10)
    weight = normal(0, 4, 3, 3, 3)
    fixed = {"weight": weight, "pad_type": "valid"}
    saved.check("conv", {"x": normal(1, 2, 3, 9, 8)}, lambda t: F.conv2d(t, torch.from_numpy(weight).double()), fixed)


@pytest.mark.parametrize("rank", [1, 2])
@EXAMPLES
@given(data=st.data(), groups=st.integers(1, 2), into=st.integers(1, 2), out=st.integers(1, 2), seed=SEEDS)
def test_conv_transpose(
    saved: Any, rank: int, data: st.DataObject, groups: int, into: int, out: int, seed: int
) -> None:
    axes = st.lists(st.integers(1, 3), min_size=rank, max_size=rank)
    kernel, strides, dilations, sizes = (data.draw(axes) for _ in range(4))
    pads = [data.draw(st.integers(0, (d * (k - 1)) // 2)) for k, d in zip(kernel, dilations, strict=True)]
    weight = normal(seed, groups * into, out, *kernel)
    w = torch.from_numpy(weight).double()
    fixed = {
        "weight": weight,
        "strides": strides,
        "dilations": dilations,
        "groups": groups,
        "pad_type": "custom",
        "pad": both(pads),
    }

    def right(t: torch.Tensor) -> torch.Tensor:
        return TRANSPOSES[rank](t, w, None, strides, pads, 0, groups, dilations)

    assume(all(n > 0 for n in right(torch.zeros(1, groups * into, *sizes).double()).shape))
    saved.check_both("conv_transpose", {"x": normal(seed + 1, 2, groups * into, *sizes)}, right, fixed)


def test_conv_transpose_with_an_output_shape(saved: Any) -> None:
    weight = normal(0, 3, 2, 3, 3)
    fixed = {
        "weight": weight,
        "strides": [2, 2],
        "pad_type": "custom",
        "pad": [1, 1, 1, 1],
        "output_shape": [1, 2, 8, 10],
    }

    def right(t: torch.Tensor) -> torch.Tensor:
        return F.conv_transpose2d(t, torch.from_numpy(weight).double(), stride=2, padding=1, output_padding=1)

    saved.check("conv_transpose", {"x": normal(1, 1, 3, 4, 5)}, right, fixed)


@pytest.mark.parametrize(("rank", "ceil"), [(1, False), (2, False), (3, False), (1, True), (2, True)])
@EXAMPLES
@given(data=st.data(), seed=SEEDS)
def test_pools(saved: Any, rank: int, ceil: bool, data: st.DataObject, seed: int) -> None:
    kernel = data.draw(st.lists(st.integers(1, 3), min_size=rank, max_size=rank))
    strides = [data.draw(st.integers(1, k)) for k in kernel]
    pads = [data.draw(st.integers(0, k // 2)) for k in kernel]
    x = normal(seed, 2, 3, *[k + data.draw(st.integers(0, 4)) for k in kernel])
    fixed = {"kernel_sizes": kernel, "strides": strides, "pad_type": "custom", "pad": both(pads), "ceil_mode": ceil}
    saved.check_both("max_pool", {"x": x}, lambda t: MAX_POOLS[rank](t, kernel, strides, pads, ceil_mode=ceil), fixed)
    for excluded in (False, True):
        saved.check_both(
            "avg_pool",
            {"x": x},
            lambda t: AVG_POOLS[rank](t, kernel, strides, pads, ceil, not excluded),  # noqa: B023 - called at once
            fixed | {"exclude_padding_from_average": excluded},
        )


def test_what_rounding_up_adds_is_never_the_largest(saved: Any) -> None:
    fixed = {"kernel_sizes": [2, 2], "strides": [2, 2], "pad_type": "custom", "pad": [0] * 4, "ceil_mode": True}
    x = -1 - np.abs(normal(0, 1, 2, 5, 5))
    saved.check("max_pool", {"x": x}, lambda t: F.max_pool2d(t, 2, ceil_mode=True), fixed)


def test_l2_pool(saved: Any) -> None:
    fixed = {"kernel_sizes": [2, 3], "strides": [2, 1], "pad_type": "valid"}
    saved.check("l2_pool", {"x": normal(0, 1, 2, 6, 7)}, lambda t: F.lp_pool2d(t, 2, (2, 3), (2, 1)), fixed)


@pytest.mark.parametrize("corners", [False, True])
@EXAMPLES
@given(h=st.integers(1, 6), w=st.integers(1, 6), up=st.integers(1, 9), across=st.integers(1, 9), seed=SEEDS)
def test_bilinear(saved: Any, corners: bool, h: int, w: int, up: int, across: int, seed: int) -> None:
    x = normal(seed, 1, 2, h, w)
    mode = "STRICT_ALIGN_CORNERS" if corners else "UNALIGN_CORNERS"

    def right(t: torch.Tensor) -> torch.Tensor:
        return F.interpolate(t, (up, across), mode="bilinear", align_corners=corners)

    fixed = {"target_size_height": up, "target_size_width": across, "sampling_mode": mode}
    saved.check_both("resize_bilinear", {"x": x}, right, fixed)
    sizes = {"shape": [up, across], "resized_dims": np.uint32(2), "sampling_mode": mode}
    saved.check_both("resize", {"x": x}, right, sizes)
    factors = {"scale_factor_height": 2, "scale_factor_width": 3, "align_corners": corners}
    saved.check_both(
        "upsample_bilinear",
        {"x": x},
        lambda t: F.interpolate(t, (2 * h, 3 * w), mode="bilinear", align_corners=corners),
        factors,
    )


GRIDS = {  # what coremltools documents for two values, 0 and 1, resized to 5 and to 6
    "UNALIGN_CORNERS": ([0, 0.1, 0.5, 0.9, 1], [0, 0, 1 / 3, 2 / 3, 1, 1]),
    "STRICT_ALIGN_CORNERS": ([0, 0.25, 0.5, 0.75, 1], [0, 0.2, 0.4, 0.6, 0.8, 1]),
    "ALIGN_CORNERS": ([0, 0.25, 0.5, 0.75, 1], [0, 0.2, 0.4, 0.6, 0.8, 1]),
    "DEFAULT": ([0, 0.4, 0.8, 1, 1], [0, 1 / 3, 2 / 3, 1, 1, 1]),
    "OFFSET_CORNERS": ([0.1, 0.3, 0.5, 0.7, 0.9], [1 / 12, 0.25, 5 / 12, 7 / 12, 0.75, 11 / 12]),
}


@pytest.mark.parametrize("mode", GRIDS)
def test_documented_grids(saved: Any, mode: str) -> None:
    x = np.array([[[0, 1], [0, 1]]], np.float32)
    for width, grid in zip((5, 6), GRIDS[mode], strict=True):
        want = torch.tensor([[grid, grid]], dtype=torch.float64)
        fixed = {"target_size_height": 2, "target_size_width": width, "sampling_mode": mode}
        saved.check("resize_bilinear", {"x": x}, lambda t: want, fixed)  # noqa: B023 - called at once


def test_align_corners_to_one_pixel_takes_the_middle(saved: Any) -> None:
    fixed = {"target_size_height": 1, "target_size_width": 1, "sampling_mode": "ALIGN_CORNERS"}
    want = torch.tensor([[[3.0]]], dtype=torch.float64)
    saved.check("resize_bilinear", {"x": np.array([[[0, 1, 2], [4, 5, 6]]], np.float32)}, lambda t: want, fixed)


@EXAMPLES
@given(h=st.integers(1, 6), w=st.integers(1, 6), up=st.integers(1, 4), across=st.integers(1, 9), seed=SEEDS)
def test_nearest(saved: Any, h: int, w: int, up: int, across: int, seed: int) -> None:
    x = normal(seed, 1, 2, h, w)
    fixed = {"scale_factor_height": up, "scale_factor_width": 2}
    saved.check("upsample_nearest_neighbor", {"x": x}, lambda t: F.interpolate(t, scale_factor=(up, 2)), fixed)
    sizes = {"target_size_height": up, "target_size_width": across}
    saved.check("resize_nearest_neighbor", {"x": x}, lambda t: F.interpolate(t, (up, across)), sizes)
    named = {"shape": [up, across], "resized_dims": np.uint32(2), "interpolation_mode": "NEAREST_NEIGHBOR"}
    saved.check("resize", {"x": x}, lambda t: F.interpolate(t, (up, across)), named)
