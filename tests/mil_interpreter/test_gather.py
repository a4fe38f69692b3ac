"""Gathering, scattering and ordering, from disk, against PyTorch and NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mil_interpreter.errors import PackageError
from mil_interpreter.records import Array
from tests.mil_interpreter.programs import builder as mb
from tests.mil_interpreter.programs import normal

EXAMPLES = settings(max_examples=5, deadline=None)
SEEDS = st.integers(0, 2**31)
SHAPES = st.lists(st.integers(1, 5), min_size=1, max_size=3)
MODES = {"add": "sum", "mul": "prod", "max": "amax", "min": "amin"}


def indices(seed: int, limit: int, *shape: int, low: int | None = None) -> Array:
    least = -limit if low is None else low
    return np.random.default_rng(seed).integers(least, limit, shape, dtype=np.int32)


@pytest.mark.parametrize("ascending", [False, True])
@EXAMPLES
@given(shape=SHAPES, seed=SEEDS, data=st.data())
def test_topk_gives_ties_to_the_lower_index(
    saved: Any, ascending: bool, shape: list[int], seed: int, data: st.DataObject
) -> None:
    axis = data.draw(st.integers(-len(shape), len(shape) - 1))
    k = data.draw(st.integers(1, shape[axis]))
    x = np.round(normal(seed, *shape))  # many ties
    order = torch.argsort(torch.from_numpy(x), dim=axis, descending=not ascending, stable=True).narrow(axis, 0, k)
    fixed = {"k": k, "axis": axis, "ascending": ascending}
    saved.check_both("topk", {"x": x}, lambda t: (t.gather(axis, order), order), fixed)
    full = torch.argsort(torch.from_numpy(x), dim=axis, descending=not ascending, stable=True)
    saved.check_both("argsort", {"x": x}, lambda t: full, {"axis": axis, "ascending": ascending})


@pytest.mark.parametrize("kind", [np.int32, np.uint16])
@EXAMPLES
@given(shape=SHAPES, count=st.integers(1, 4), seed=SEEDS, data=st.data())
def test_gather(saved: Any, kind: type, shape: list[int], count: int, seed: int, data: st.DataObject) -> None:
    axis = data.draw(st.integers(-len(shape), len(shape) - 1))
    chosen: Array = indices(seed, shape[axis], 2, count, low=0 if kind is np.uint16 else None).astype(kind)
    x = normal(seed + 1, *shape)
    saved.check(
        "gather",
        {"x": x, "indices": chosen},
        lambda *_: torch.from_numpy(np.take(x, chosen.astype(int), axis)),
        {"axis": axis},
    )


def test_gather_with_batch_dims(saved: Any) -> None:
    x, chosen = normal(0, 2, 5, 3), indices(1, 5, 2, 4, low=0)
    want = np.stack([x[i][chosen[i]] for i in range(2)])
    fixed = {"axis": 1, "batch_dims": 1}
    saved.check("gather", {"x": x, "indices": chosen}, lambda *_: torch.from_numpy(want), fixed)


@EXAMPLES
@given(shape=SHAPES, count=st.integers(1, 4), seed=SEEDS, data=st.data())
def test_gather_along_axis(saved: Any, shape: list[int], count: int, seed: int, data: st.DataObject) -> None:
    axis = data.draw(st.integers(0, len(shape) - 1))
    chosen = indices(seed, shape[axis], *[count if d == axis else n for d, n in enumerate(shape)], low=0)
    saved.check(
        "gather_along_axis",
        {"x": normal(seed + 1, *shape), "indices": chosen},
        lambda x, i: x.gather(axis, i.long()),
        {"axis": axis},
    )


@EXAMPLES
@given(depth=st.integers(1, 3), seed=SEEDS)
def test_gather_nd(saved: Any, depth: int, seed: int) -> None:
    chosen = np.stack([indices(seed + d, n, 4, low=0) for d, n in enumerate((2, 3, 5)[:depth])], axis=-1)
    saved.check(
        "gather_nd",
        {"x": normal(seed, 2, 3, 5), "indices": chosen},
        lambda x, i: x[tuple(i[..., d].long() for d in range(depth))],
    )


def test_gather_nd_with_batch_dims(saved: Any) -> None:
    x, chosen = normal(0, 2, 5, 3), indices(1, 5, 2, 4, 1, low=0)
    want = np.stack([x[b][chosen[b, :, 0]] for b in range(2)])
    saved.check("gather_nd", {"x": x, "indices": chosen}, lambda *_: torch.from_numpy(want), {"batch_dims": 1})


@pytest.mark.parametrize("operator", ["scatter", "scatter_along_axis"])
@pytest.mark.parametrize("mode", MODES)
@EXAMPLES
@given(shape=SHAPES, count=st.integers(1, 4), seed=SEEDS, data=st.data())
def test_scatter(
    saved: Any, operator: str, mode: str, shape: list[int], count: int, seed: int, data: st.DataObject
) -> None:
    axis = data.draw(st.integers(0, len(shape) - 1))
    at = [count if d == axis else n for d, n in enumerate(shape)]
    whole = operator == "scatter"  # each index moves a whole slice
    inputs = {
        "data": normal(seed, *shape),
        "indices": indices(seed, shape[axis], *([count] if whole else at), low=0),
        "updates": normal(seed + 1, *at),
    }
    saved.check(
        operator,
        inputs,
        lambda d, i, u: d.scatter_reduce(axis, _along(i, axis, u) if whole else i.long(), u, MODES[mode]),
        {"axis": axis, "mode": mode},
    )


def _along(i: torch.Tensor, axis: int, like: torch.Tensor) -> torch.Tensor:
    return i.long().reshape([-1 if d == axis else 1 for d in range(like.ndim)]).expand(like.shape)


def test_scatter_nd_and_the_other_modes(saved: Any) -> None:
    at = np.array([[0, 1], [2, 0], [1, 2]], dtype=np.int32)
    inputs = {"data": normal(0, 3, 4), "indices": at, "updates": normal(1, 3)}
    rows, columns = torch.from_numpy(at[:, 0]).long(), torch.from_numpy(at[:, 1]).long()
    for mode, change in {
        "update": lambda d, u: u,
        "add": lambda d, u: d + u,
        "sub": lambda d, u: d - u,
        "div": lambda d, u: d / u,
    }.items():

        def right(d: torch.Tensor, i: torch.Tensor, u: torch.Tensor, change: Any = change) -> torch.Tensor:
            return d.index_put((rows, columns), change(d[rows, columns], u))

        saved.check("scatter_nd", inputs, right, {"mode": mode})


@EXAMPLES
@given(shape=SHAPES, seed=SEEDS)
def test_non_zero(saved: Any, shape: list[int], seed: int) -> None:
    saved.check("non_zero", {"x": np.round(normal(seed, *shape))}, torch.nonzero)


@EXAMPLES
@given(count=st.integers(1, 5), seed=SEEDS, axis=st.integers(-2, 1))
def test_one_hot(saved: Any, count: int, seed: int, axis: int) -> None:
    fixed = {"one_hot_vector_size": count, "axis": axis, "on_value": 2.5, "off_value": -1.0}

    def right(i: torch.Tensor) -> torch.Tensor:
        return (torch.nn.functional.one_hot(i.long(), count).movedim(-1, axis) * 3.5 - 1).double()

    saved.check("one_hot", {"indices": indices(seed, count, 6, low=0)}, right, fixed)


def test_an_index_outside_the_tensor_is_a_sentence(saved: Any) -> None:
    inputs = {"x": normal(0, 3, 2), "indices": np.array([0, 7], dtype=np.int32)}
    with pytest.raises(PackageError, match=r"operator 'gather' .*\(an index between 0 and 7 for 3 values\)"):
        saved.run(inputs, lambda v: mb.gather(x=v["x"], indices=v["indices"], axis=0))
