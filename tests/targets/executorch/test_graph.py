"""What ExecuTorch and XNNPACK get wrong of a graph: each part alone in PyTorch, and all of them in ExecuTorch."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from edgekit.errors import ArtifactError
from edgekit.hosts import process
from edgekit.model.adapter import to_tensors
from edgekit.model.complex_numbers import is_complex
from edgekit.model.graph import capture, quiet
from edgekit.model.spec import Axis, Input, ModelSpec, Output
from edgekit_targets.executorch import graph as graphs
from edgekit_targets.executorch import lower
from tests import modules
from tests.targets import phone_models
from tests.targets.captured import BATCHES, Parts, assert_same, exported, targets


def worked_around(module: nn.Module, *shape: int) -> torch.fx.GraphModule:
    """Captured with an open batch, with the workarounds applied."""
    with quiet():
        return graphs.apply_workarounds("parts", exported(module.eval(), *shape))


@pytest.mark.parametrize(
    "settings",
    [
        {"kernel_size": (2, 3, 3), "stride": (2, 1, 2)},
        {"kernel_size": 3, "padding": (1, 0, 1), "dilation": (2, 1, 1), "bias": False},
        {"kernel_size": (3, 1, 2), "groups": 2, "stride": (3, 1, 1), "padding": (2, 0, 0)},
    ],
)
def test_three_dimensional_convolutions_become_two_dimensional(settings: dict[str, object]) -> None:
    torch.manual_seed(0)
    module = Parts(lambda layers, x: layers[0](x), nn.Conv3d(4, 6, **settings))  # type: ignore[arg-type]
    made = worked_around(module, 4, 7, 6, 6)
    assert not any("conv3d" in name for name in targets(made))
    assert_same(module, made, 4, 7, 6, 6)


@pytest.mark.parametrize(
    "split",
    [
        lambda x: x.chunk(3, 1),
        lambda x: x.chunk(3, -1),
        lambda x: x.split(3, 1),
        lambda x: x.split([1, 5, 2], 1),
        lambda x: torch.unbind(x, 1),
        lambda x: x.unbind(-1),
    ],
)
def test_splits_become_slices(split: Callable[[Tensor], tuple[Tensor, ...]]) -> None:
    def formula(_: nn.ModuleList, x: Tensor) -> Tensor:
        return torch.stack([(n + 1) * part.mean(-1).sum(-1) for n, part in enumerate(split(x))]).sum(0)

    module = Parts(formula)
    made = worked_around(module, 8, 5)
    assert not {name for name in targets(made) if any(kind in name for kind in ("chunk", "split", "unbind"))}
    assert_same(module, made, 8, 5)


def test_a_gru_is_written_out_without_splits() -> None:
    torch.manual_seed(0)
    module = Parts(lambda layers, x: layers[0](x)[0], nn.GRU(4, 5, batch_first=True, bidirectional=True))
    made = worked_around(module, 3, 4)
    assert not {name for name in targets(made) if any(kind in name for kind in ("gru", "chunk", "split"))}
    assert_same(module, made, 3, 4)


def test_slopes_of_rows_and_pictures_are_kept() -> None:
    torch.manual_seed(0)
    module = Parts(lambda layers, x: layers[1](layers[0](x).mean((2, 3))), *(nn.PReLU(4) for _ in range(2)))
    for layer in module.layers:
        layer.weight.data = torch.rand(4)
    made = worked_around(module, 4, 5, 5)
    assert len([node for node in made.graph.nodes if node.target is torch.ops.aten.prelu.default]) == 1
    assert_same(module, made, 4, 5, 5)


def test_what_depends_on_weights_alone_is_computed_and_its_parts_are_dropped() -> None:
    def formula(layers: nn.ModuleList, x: Tensor) -> Tensor:
        gain = torch.exp(-layers.get_parameter("0.weight").reshape(1, -1)) + 1
        return torch.as_tensor(layers[1](x) * gain + gain.expand(x.shape[0], 8))

    torch.manual_seed(0)
    module = Parts(formula, nn.Linear(8, 1), nn.Linear(8, 8))
    made = worked_around(module, 8)
    assert not {name for name in targets(made) if name in ("exp", "neg", "reshape")}
    assert any("expand" in name for name in targets(made))  # what a batch's size is needed for
    assert not [name for name, _ in made.named_parameters() if name.startswith(("layers.0", "gain"))]
    assert_same(module, made, 8)


def test_a_pool_says_its_stride() -> None:
    made = worked_around(Parts(lambda _, x: functional.max_pool2d(x, (2, 3), padding=(1, 1))), 3, 6, 6)
    (pool,) = (node for node in made.graph.nodes if "max_pool2d" in str(node.target))
    assert pool.args[2] == pool.args[1] == [2, 3]


class Rest(nn.Module):
    """Frames -> rows: what ExecuTorch and XNNPACK got wrong, one after the other."""

    def __init__(self) -> None:
        super().__init__()
        self.frames = nn.Conv3d(1, 4, (2, 1, 1), stride=(2, 1, 1))
        self.linear, self.slopes = nn.Linear(16, 12), nn.PReLU(12)
        self.gain = nn.Parameter(torch.linspace(-1, 1, 12))
        self.project = nn.Linear(3, 3)

    def forward(self, x: Tensor) -> Tensor:
        pooled = functional.max_pool2d(x, 2)
        y = self.frames(pooled[:, None]).mean((3, 4)).flatten(1)
        one, other = self.slopes(self.linear(y)).chunk(2, 1)
        z = torch.cat([one, torch.tanh(other)], 1)
        z = (z - self.gain.reshape(1, -1) * z).reshape(-1, 1, 4, 3)
        mask = torch.ones(4, 4, dtype=torch.bool).tril()
        seen = functional.scaled_dot_product_attention(z, z, z, attn_mask=mask)
        return self.project(seen.transpose(1, 2).reshape(-1, 4, 3).view(-1, 3)).reshape(-1, 12)  # type: ignore[no-any-return]


def whole() -> ModelSpec:
    """A Sequential, whose layers have numbers for names."""
    torch.manual_seed(0)
    layers = (nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU(), Rest())
    layers[3].get_parameter("slopes.weight").data = torch.rand(12)
    return modules.of_rows("whole", nn.Sequential(*layers), 3, 8, 8, batch=3, factory=f"{__name__}:whole")


def answers(folder: str, progress: object) -> dict[str, object]:
    """What an artifact says to each batch: called in a worker, which XNNPACK may end."""
    from edgekit_targets.executorch import export as executorch

    runtime = phone_models.opened(executorch.TARGET, Path(folder))
    return {str(n): runtime.run(whole().random(n, {"batch": n}))["y"].tolist() for n in BATCHES}


def executorch_needed() -> None:
    pytest.importorskip("executorch", reason="no ExecuTorch: pip install -e '.[executorch]'")


@pytest.mark.skipif(not os.environ.get("EDGEKIT_SLOW"), reason="takes 20 seconds: set EDGEKIT_SLOW=1")
@pytest.mark.filterwarnings("ignore::DeprecationWarning:executorch.*", "ignore::DeprecationWarning:torchao.*")
def test_executorch_answers_like_the_module_for_every_batch(tmp_path: Path) -> None:
    executorch_needed()
    from edgekit_targets.executorch import export as executorch

    made = phone_models.made(executorch.TARGET, "executorch", whole(), tmp_path)
    got = process.call(answers, {"folder": str(made)})
    for batch in BATCHES:
        inputs = to_tensors(whole(), whole().random(batch, {"batch": batch}))
        right = whole().module(*inputs).detach().numpy()
        np.testing.assert_allclose(np.array(got[str(batch)]), right, atol=1e-4 * float(np.abs(right).max()))


@pytest.mark.filterwarnings("ignore::DeprecationWarning:executorch.*", "ignore::DeprecationWarning:torchao.*")
def test_what_its_kernels_lack_is_named_with_the_reason_and_the_way_out(tmp_path: Path) -> None:
    executorch_needed()
    from edgekit_targets.executorch import export as executorch

    spec = modules.of_rows("volumes", nn.ConvTranspose3d(2, 2, 2), 2, 3, 3, 3, batch=2)
    made = phone_models.made(executorch.TARGET, "executorch", spec, tmp_path)
    runtime = phone_models.opened(executorch.TARGET, made)
    said = r"^ExecuTorch failed in the operator 'aten::convolution': Expect input tensor to be 3-D or 4-D, but got, 5. "
    with pytest.raises(ArtifactError, match=said + "Write that part of the model with other operators"):
        runtime.run(spec.random(0))


def test_a_transform_along_an_axis_that_is_fixed_here_becomes_products() -> None:
    axes = {"batch": Axis(1, 1, 3), "length": Axis(8, 4, 16)}
    module = modules.Formula(lambda linear, x: torch.fft.rfft(x).abs()).eval()
    spec = ModelSpec("spectrum", module, (Input("x", ("batch", "length")),), (Output("y"),), axes)
    fixed = lower.prepare_program(capture(spec), spec, ("batch",))
    assert not any(is_complex(node) for node in fixed.graph.nodes)
    x = torch.rand(2, 8)
    torch.testing.assert_close(fixed.module()(x), module(x))


def test_searches_and_remainders_of_integers_are_written_out() -> None:
    edges = torch.tensor([-0.2, 0.1, 0.3])

    def formula(_: nn.ModuleList, x: Tensor) -> Tensor:
        whole = (x * 40).int()
        return torch.bucketize(x, edges) + whole % 7 + whole % -3 + whole % (whole.abs() + 1)

    module = Parts(formula)
    made = worked_around(module, 5)
    assert not {"bucketize", "remainder"} & set(targets(made))
    assert_same(module, made, 5)
