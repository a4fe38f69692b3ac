"""Operators that move values, from disk: their results are exact, so fp16 is as fp32."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from mil_interpreter.records import Array
from tests.mil_interpreter.programs import builder as mb

F = torch.nn.functional
EXAMPLES = settings(max_examples=8, deadline=None)
SHAPES = st.lists(st.integers(1, 5), min_size=1, max_size=4)


def numbered(*shape: int) -> Array:
    """All values different, so that a wrong place shows."""
    return np.arange(int(np.prod(shape)), dtype=np.float32).reshape(shape)


def constant(v: Any) -> Any:
    return lambda *_: torch.as_tensor(v)


@EXAMPLES
@given(shape=SHAPES, data=st.data())
def test_reshape_and_shape(saved: Any, shape: list[int], data: st.DataObject) -> None:
    x = numbered(*shape)
    saved.check("reshape", {"x": x}, lambda t: t.reshape(-1, shape[-1]), {"shape": [-1, shape[-1]]})
    saved.check("reshape", {"x": x}, lambda t: t, {"shape": [0] * len(shape)})
    saved.check("shape", {"x": x}, constant(shape))
    axis = data.draw(st.integers(1, len(shape)))
    before = int(np.prod(shape[:axis]))
    saved.check("flatten2d", {"x": x}, lambda t: t.reshape(before, -1), {"axis": axis})
    saved.check("identity", {"x": x}, lambda t: t)


def test_reshape_like(saved: Any) -> None:
    x, first, second = numbered(2, 3, 4), numbered(2, 9), numbered(1, 12)
    got = saved.run(
        {"x": x, "a": first, "b": second},
        lambda v: mb.reshape_like(
            x=v["x"], ref_tensors=(v["a"], v["b"]), begins=(0, 1), ends=(1, 0), end_masks=(False, True)
        ),
    )
    np.testing.assert_array_equal(got[0], x.reshape(2, 12))


@EXAMPLES
@given(shape=SHAPES, data=st.data())
def test_axes(saved: Any, shape: list[int], data: st.DataObject) -> None:
    x, rank = numbered(*shape), len(shape)
    perm = data.draw(st.permutations(range(rank)))
    saved.check("transpose", {"x": x}, lambda t: t.permute(perm), {"perm": perm})
    at = data.draw(st.integers(-rank - 1, rank))
    saved.check("expand_dims", {"x": x}, lambda t: t.unsqueeze(at), {"axes": [at]})
    over = data.draw(st.lists(st.integers(0, rank - 1), min_size=1, max_size=rank, unique=True))
    saved.check("reverse", {"x": x}, lambda t: t.flip(over), {"axes": over})
    saved.check("reverse", {"x": x}, lambda t: t.flip(list(range(rank))))


@EXAMPLES
@given(shape=st.lists(st.sampled_from([1, 3]), min_size=2, max_size=4))
def test_squeeze(saved: Any, shape: list[int]) -> None:
    assume(max(shape) > 1)
    ones = [d for d, n in enumerate(shape) if n == 1]
    saved.check("squeeze", {"x": numbered(*shape)}, lambda t: t.squeeze())
    if ones:
        saved.check("squeeze", {"x": numbered(*shape)}, lambda t: t.squeeze(ones[0]), {"axes": [ones[0]]})


@EXAMPLES
@given(shape=SHAPES, count=st.integers(1, 3), data=st.data())
def test_concat_and_stack(saved: Any, shape: list[int], count: int, data: st.DataObject) -> None:
    axis = data.draw(st.integers(-len(shape), len(shape) - 1))
    inputs = {f"x{i}": numbered(*shape) + 1000 * i for i in range(count)}
    tensors = [torch.from_numpy(a) for a in inputs.values()]

    def run(operator: str, **constants: Any) -> Array:
        made = saved.run(inputs, lambda v: getattr(mb, operator)(values=tuple(v.values()), **constants))
        return np.asarray(made[0])

    np.testing.assert_array_equal(run("concat", axis=axis), torch.cat(tensors, axis))
    np.testing.assert_array_equal(run("stack", axis=axis), torch.stack(tensors, axis))
    woven = torch.stack(tensors, axis % len(shape) + 1).reshape(
        [n * count if d == axis % len(shape) else n for d, n in enumerate(shape)]
    )
    np.testing.assert_array_equal(run("concat", axis=axis, interleave=True), woven)


def test_concat_of_scalars_is_a_vector(saved: Any) -> None:
    inputs = {"a": np.full(1, 3, np.float32), "b": np.full(1, 4, np.float32)}
    got = saved.run(inputs, lambda v: mb.concat(values=[mb.squeeze(x=x) for x in v.values()], axis=0))
    np.testing.assert_array_equal(got[0], [3, 4])


@EXAMPLES
@given(sizes=st.lists(st.integers(1, 4), min_size=2, max_size=4), axis=st.integers(0, 1))
def test_split(saved: Any, sizes: list[int], axis: int) -> None:
    x = numbered(sum(sizes), 3) if axis == 0 else numbered(3, sum(sizes))
    saved.check("split", {"x": x}, lambda t: t.split(sizes, axis), {"split_sizes": sizes, "axis": axis})
    even = numbered(6, 3)
    saved.check("split", {"x": even}, lambda t: t.chunk(3, 0), {"num_splits": 3, "axis": 0})


@EXAMPLES
@given(shape=st.lists(st.integers(2, 6), min_size=1, max_size=3), data=st.data())
def test_slice_by_index(saved: Any, shape: list[int], data: st.DataObject) -> None:
    begin, end, stride, from_start, to_end = [], [], [], [], []
    for n in shape:
        first = data.draw(st.integers(0, n - 1))
        begin.append(data.draw(st.sampled_from([first, first - n])))
        end.append(data.draw(st.integers(first + 1, n)))
        stride.append(data.draw(st.integers(1, 3)))
        from_start.append(data.draw(st.booleans()))
        to_end.append(data.draw(st.booleans()))
    wanted = tuple(
        slice(None if s else b, None if t else e, k)
        for b, e, k, s, t in zip(begin, end, stride, from_start, to_end, strict=True)
    )
    parameters = {"begin": begin, "end": end, "stride": stride, "begin_mask": from_start, "end_mask": to_end}
    saved.check("slice_by_index", {"x": numbered(*shape)}, lambda t: t[wanted], parameters)


def test_slices_that_drop_an_axis_or_run_backwards(saved: Any) -> None:
    x = numbered(3, 4)
    dropped = {"begin": [1, 0], "end": [0, 4], "squeeze_mask": [True, False]}
    saved.check("slice_by_index", {"x": x}, lambda t: t[1], dropped)
    backwards = {"begin": [0, 3], "end": [3, 0], "stride": [1, -1], "end_mask": [False, True]}
    saved.check("slice_by_index", {"x": x}, lambda t: t.flip(1), backwards)


@EXAMPLES
@given(shape=st.lists(st.integers(2, 6), min_size=1, max_size=3), data=st.data())
def test_slice_by_size(saved: Any, shape: list[int], data: st.DataObject) -> None:
    begin = [data.draw(st.integers(0, n - 1)) for n in shape]
    size = [data.draw(st.sampled_from([-1, *range(1, n - b + 1)])) for n, b in zip(shape, begin, strict=True)]
    wanted = tuple(slice(b, None if s == -1 else b + s) for b, s in zip(begin, size, strict=True))
    saved.check("slice_by_size", {"x": numbered(*shape)}, lambda t: t[wanted], {"begin": begin, "size": size})


@EXAMPLES
@given(shape=SHAPES, data=st.data())
def test_tile(saved: Any, shape: list[int], data: st.DataObject) -> None:
    reps = [data.draw(st.integers(1, 3)) for _ in shape]
    saved.check("tile", {"x": numbered(*shape)}, lambda t: t.tile(reps), {"reps": reps})


@pytest.mark.parametrize("mode", ["constant", "reflect", "replicate"])
@EXAMPLES
@given(pads=st.lists(st.integers(0, 2), min_size=4, max_size=4))
def test_pad(saved: Any, mode: str, pads: list[int]) -> None:
    fixed: dict[str, Any] = {"pad": pads, "mode": mode} | ({"constant_val": 0.5} if mode == "constant" else {})
    turned = [pads[2], pads[3], pads[0], pads[1]]  # PyTorch lists the last axis first

    def right(t: torch.Tensor) -> torch.Tensor:
        return F.pad(t, turned, mode=mode, value=0.5 if mode == "constant" else None)

    saved.check("pad", {"x": numbered(2, 3, 4, 5)}, right, fixed)


@pytest.mark.parametrize("name", ["pixel_shuffle", "pixel_unshuffle", "depth_to_space", "space_to_depth"])
@EXAMPLES
@given(n=st.integers(1, 2), c=st.integers(1, 3), h=st.integers(1, 3), w=st.integers(1, 3), f=st.integers(2, 3))
def test_blocks(saved: Any, name: str, n: int, c: int, h: int, w: int, f: int) -> None:
    down = name in ("pixel_unshuffle", "space_to_depth")
    x = numbered(n, c, h * f, w * f) if down else numbered(n, c * f * f, h, w)

    def right(t: torch.Tensor) -> torch.Tensor:
        if name == "pixel_shuffle":
            return F.pixel_shuffle(t, f)
        if name == "pixel_unshuffle":
            return F.pixel_unshuffle(t, f)
        if name == "depth_to_space":  # TensorFlow's order: the block comes before the channel
            return F.pixel_shuffle(t.reshape(n, f * f, c, h, w).transpose(1, 2).reshape(n, c * f * f, h, w), f)
        return F.pixel_unshuffle(t, f).reshape(n, c, f * f, h, w).transpose(1, 2).reshape(n, c * f * f, h, w)

    parameter = {"pixel_shuffle": "upscale_factor", "pixel_unshuffle": "downscale_factor"}.get(name, "block_size")
    saved.check(name, {"x": x}, right, {parameter: np.uint32(f) if name == "pixel_unshuffle" else f})


@EXAMPLES
@given(length=st.integers(3, 9), size=st.integers(1, 3), stride=st.integers(1, 3), axis=st.integers(0, 2))
def test_sliding_windows(saved: Any, length: int, size: int, stride: int, axis: int) -> None:
    x = numbered(*[length if d == axis else 2 for d in range(3)])
    fixed = {"axis": axis, "size": size, "stride": stride}
    saved.check("sliding_windows", {"x": x}, lambda t: t.unfold(axis, size, stride).movedim(-1, axis + 1), fixed)


@EXAMPLES
@given(lower=st.integers(-1, 3), upper=st.integers(-1, 3))
def test_band_part(saved: Any, lower: int, upper: int) -> None:
    def right(t: torch.Tensor) -> torch.Tensor:
        below = t if lower < 0 else t.triu(-lower)
        return below if upper < 0 else below.tril(upper)

    saved.check("band_part", {"x": numbered(2, 3, 4) + 1}, right, {"lower": lower, "upper": upper})


def test_crop(saved: Any) -> None:
    fixed = {"crop_height": [1, 2], "crop_width": [0, 1]}
    saved.check("crop", {"x": numbered(1, 2, 6, 5)}, lambda t: t[..., 1:4, 0:4], fixed)


@EXAMPLES
@given(shape=SHAPES)
def test_constant_tensors(saved: Any, shape: list[int]) -> None:
    like = numbered(*shape)
    saved.check("fill_like", {"ref_tensor": like}, lambda t: torch.full(t.shape, 0.5).double(), {"value": 0.5})
    sizes = np.array(shape, dtype=np.int32)
    got = saved.run({"s": sizes}, lambda v: mb.fill(shape=v["s"], value=np.float32(0.5)))
    np.testing.assert_array_equal(got[0], np.full(shape, 0.5))


@EXAMPLES
@given(start=st.integers(-5, 5), count=st.integers(1, 6), step=st.sampled_from([-3, -1, 1, 2]))
def test_range(saved: Any, start: int, count: int, step: int) -> None:
    end = start + count * step
    inputs = {n: np.array([v], dtype=np.int32) for n, v in {"start": start, "end": end, "step": step}.items()}
    got = saved.run(inputs, lambda v: mb.range_1d(**{n: mb.squeeze(x=x) for n, x in v.items()}))
    np.testing.assert_array_equal(got[0], np.arange(start, end, step))
