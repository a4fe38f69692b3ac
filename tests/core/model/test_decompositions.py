"""Operators that coremltools lacks or gets wrong: a package that has them all answers like the module."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from edgekit.model.graph import capture
from edgekit.model.spec import Input, ModelSpec, Output
from edgekit_targets.coreml import export
from edgekit_targets.coreml.runtime import open_package
from mil_interpreter import write_package

pytest.importorskip("coremltools", reason="no coremltools: pip install -e '.[coreml]'")


NAMES = ("lstm", "gru", "both", "either", "difference", "prelu", "where", "pooled", "larger", "placed")


class Uncommon(nn.Module):
    """One answer for each of the operators."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.lstm, self.gru = nn.LSTM(4, 3, batch_first=True), nn.GRU(4, 3, batch_first=True, bidirectional=True)
        self.slopes = nn.Parameter(torch.linspace(-0.5, 0.5, 4))

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
        )


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning")
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
