"""Operators that coremltools lacks or gets wrong: a package that has them all answers like the module."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from edgekit.model.decompositions import pool_whole_pictures_by_mean, without_searches
from edgekit.model.graph import capture, quiet
from edgekit.model.spec import Input, ModelSpec, Output
from edgekit_targets.coreml import export
from edgekit_targets.coreml.runtime import open_package
from mil_interpreter import write_package
from tests.targets.captured import Parts, exported, targets

NAMES = (
    *("lstm", "gru", "both", "either", "difference", "prelu", "where", "pooled", "larger", "placed"),
    *("exclusive", "remainder", "buckets", "sought", "outer"),
)


class Uncommon(nn.Module):
    """One answer for each of the operators."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.lstm, self.gru = nn.LSTM(4, 3, batch_first=True), nn.GRU(4, 3, batch_first=True, bidirectional=True)
        self.register_buffer("edges", torch.tensor([0.1, 0.4, 0.6]))
        self.slopes = nn.Parameter(torch.linspace(-0.5, 0.5, 4))

    edges: Tensor

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        picture = x.reshape(1, 1, 4, 4)
        wide, low = x > 0.2, x < 0.8
        places = torch.zeros((2, 3), dtype=torch.int64)  # as BEiT's index of relative positions
        places[1, 0:] = 5
        return (
            self.lstm(x)[0],
            self.gru(x)[0],
            (wide & low).float(),
            (~wide | ~low).float(),
            torch.diff(x, dim=1),
            torch.prelu(x[:, 0] - 0.5, self.slopes),
            torch.where(x > 0.5, x, -1.0),
            functional.max_pool2d(picture, 2),
            functional.interpolate(picture, size=(6, 6), mode="bicubic"),
            x.flatten()[places.view(-1)],
            (wide ^ low).float(),
            torch.fmod(x * 10 - 5, 1.5),
            torch.bucketize(x, self.edges, right=True).float(),
            torch.searchsorted(x.sort(-1).values, x).float(),
            torch.outer(torch.arange(3) % 2, x[0, 0]),
        )


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning")
@pytest.mark.skipif(importlib.util.find_spec("coremltools") is None, reason="pip install -e '.[coreml]'")
def test_core_ml_has_what_coremltools_lacks(tmp_path: Path) -> None:
    module, x = Uncommon().eval(), torch.from_numpy(np.random.default_rng(0).random((1, 4, 4), dtype=np.float32))
    with torch.no_grad():
        right = module(x)
    spec = ModelSpec("uncommon", module, (Input("x", (1, 4, 4)),), tuple(map(Output, NAMES)))
    made = export.convert(spec, capture(spec, dynamic=False).exported, export.ConversionSettings(half=False))
    write_package(made.get_spec(), Path(made.weights_dir) / "weight.bin", tmp_path / "Uncommon.mlpackage")
    mine = open_package(tmp_path, "interpreter").run({"x": x.numpy()})
    for name, array in zip(NAMES, right, strict=True):
        np.testing.assert_allclose(mine[name], array.numpy(), atol=1e-5, err_msg=name)


def test_searches_count_as_pytorch_does() -> None:
    x = torch.tensor([[-2.0, -1.0, 0.3, float("nan")], [float("inf"), 0.5, 2.0, -float("inf")]])
    edges, order = torch.tensor([0.5, -1.0, 2.0]), torch.tensor([1, 0, 2])
    rows = torch.tensor([[-1.0, 0.0, 1.0], [0.5, 0.5, 3.0]])
    for right in (False, True):
        formulas = (
            lambda _, x, right=right: torch.bucketize(x, edges.sort().values, right=right, out_int32=True),
            lambda _, x, right=right: torch.searchsorted(edges, x, right=right, sorter=order),
            lambda _, x, right=right: torch.searchsorted(rows, x, side="right" if right else "left"),
            lambda _, x, right=right: torch.searchsorted(edges.sort().values, 0.5, right=right) + x.long(),
        )
        for formula in formulas:
            module = Parts(formula)
            with quiet():
                replaced = without_searches(torch.export.export(module, (x,))).module()
            assert not {"bucketize", "searchsorted"} & set(targets(replaced))
            torch.testing.assert_close(replaced(x), module(x), rtol=0, atol=0)


def test_a_program_without_searches_is_the_same() -> None:
    program = exported(Parts(lambda _, x: x.relu()), 3)
    assert without_searches(program) is program


@pytest.mark.parametrize("is_last", [True, False])
def test_a_pool_over_any_whole_picture_is_a_mean(is_last: bool) -> None:
    """transformers' EfficientNet: OpenVINO refuses such a pool."""

    class Pools(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.whole = torch.nn.AvgPool2d(320, ceil_mode=True)
            self.part = torch.nn.AvgPool2d(2, ceil_mode=True)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            pooled: torch.Tensor = self.whole(x)
            return pooled if is_last else pooled + self.part(x).mean()

    x = torch.rand(2, 3, 5, 4)
    module = Pools().eval()
    with quiet():
        exported = torch.export.export(module, (x,))
        pool_whole_pictures_by_mean(exported)
        pools = [n.args[1] for n in exported.graph.nodes if n.target is torch.ops.aten.avg_pool2d.default]
        assert pools == ([] if is_last else [[2, 2]])
        torch.testing.assert_close(exported.module()(x), module(x))
        torch.testing.assert_close(exported.run_decompositions().module()(x), module(x))
