from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from edgekit.artifact.store import commit, read_artifact
from edgekit.errors import DependencyError, EdgekitError, ExportError, NotVerifiedHere, UsageError
from edgekit.hosts import process
from edgekit.model.adapter import named_outputs, to_tensors
from edgekit.model.graph import capture
from edgekit.model.spec import Array, Axis, EvaluationSet, Input, ModelSpec, Output
from edgekit.pipeline.worker import RUN_MODULES
from edgekit.target import Target
from edgekit.testing import TargetContract
from edgekit_targets.executorch import export as executorch
from edgekit_targets.executorch import graph as graphs
from edgekit_targets.executorch import int8 as executorch_int8
from edgekit_targets.executorch import lower
from tests.targets import phone_models

TARGETS = {"executorch": executorch.TARGET, "executorch-int8": executorch_int8.TARGET}
CLOSE = {"executorch": 1e-4, "executorch-int8": 0.1}
"""Largest difference of an output, as a share of its peak: INT8 here has random weights and random calibration."""

pytest.importorskip("executorch", reason="no ExecuTorch: pip install -e '.[executorch]'")
pytestmark = pytest.mark.filterwarnings(
    "ignore::DeprecationWarning:executorch.*", "ignore::DeprecationWarning:torchao.*"
)


class Mean(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.mean((2, 3))


class TestExecutorch(TargetContract):
    name = "executorch"


@pytest.mark.nightly
class TestExecutorchInt8(TargetContract):
    name = "executorch-int8"


@pytest.fixture(scope="module")
def pooled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pooled")
    for name, target in TARGETS.items():
        phone_models.made(target, name, phone_models.pooled(), folder)
    return folder


@pytest.mark.nightly
@pytest.mark.parametrize("name", TARGETS)
def test_answers_like_the_module_for_every_batch(name: str, pooled: Path) -> None:
    for batch in (1, 2, 3, 8):
        assert_close(phone_models.pooled(), name, pooled / name, {"batch": batch})


@pytest.mark.parametrize("name", TARGETS)
def test_refuses_a_size_that_is_fixed(name: str, pooled: Path) -> None:
    runtime = phone_models.opened(TARGETS[name], pooled / name)
    with pytest.raises(UsageError, match=r"takes 'images' as \[any, 3, 16, 16\]"):
        runtime.run({"images": np.zeros((1, 3, 32, 16), np.float32)})
    runtime.close()


def test_all_axes_stay_dynamic_where_asked(tmp_path: Path) -> None:
    spec = phone_models.pooled()
    made = phone_models.made(executorch.TARGET, "executorch", spec, tmp_path, dynamic="all")
    assert all(axis.dynamic for axis in read_artifact(made).axes.values())
    for sizes in ((1, 8, 32), (8, 32, 8), (3, 12, 20)):
        assert_close(spec, "executorch", made, dict(zip(("batch", "height", "width"), sizes, strict=True)))


def test_says_what_the_delegate_took(pooled: Path) -> None:
    note = read_artifact(pooled / "executorch").notes[0]
    took, all_of = map(int, re.findall(r"XNNPACK took (\d+) of (\d+) operators", note)[0])
    assert 0 < took <= all_of
    assert "INT8 weights in 1 linear and convolution layers" in read_artifact(pooled / "executorch-int8").notes[0]


def test_modules_that_shall_stay_float_do_and_no_axis_stays_dynamic_where_asked(tmp_path: Path) -> None:
    spec = phone_models.pooled()
    made = phone_models.made(executorch_int8.TARGET, "int8", spec, tmp_path, float="convolution", dynamic="none")
    assert read_artifact(made).static
    assert_close(spec, "executorch-int8", made, {})
    notes = read_artifact(made).notes
    assert "INT8 weights in 1 linear and convolution layers, all else in fp32; kept in fp32: convolution" in notes
    with pytest.raises(ExportError, match="no linear or convolution layer to quantize"):
        phone_models.made(executorch_int8.TARGET, "none", spec, tmp_path, float="convolution,linear")


def test_ranges_of_a_run_leave_depthwise_convolutions_in_float(tmp_path: Path) -> None:
    torch.manual_seed(0)
    drawn = EvaluationSet({"input": np.random.default_rng(0).random((4, 3, 8, 8)).astype(np.float32)}, tuple("0123"))
    layers = (
        torch.nn.Conv2d(3, 8, 3),
        torch.nn.Conv2d(8, 8, 3, groups=8),
        torch.nn.Conv2d(8, 16, 3),
        torch.nn.Flatten(),
    )
    spec = ModelSpec(
        name="depthwise",
        module=torch.nn.Sequential(*layers).eval(),
        inputs=(Input("input", ("batch", 3, 8, 8)),),
        outputs=(Output("output"),),
        axes={"batch": Axis(1, 1, 8)},
        calibration=lambda count: drawn,
    )
    made = phone_models.made(executorch_int8.TARGET, "int8", spec, tmp_path, activations="dynamic")
    assert_close(spec, "executorch-int8", made, {"batch": 3})
    assert "INT8 weights in 1 linear and convolution layers" in read_artifact(made).notes[0]


@pytest.mark.parametrize("pool", [torch.nn.AdaptiveAvgPool2d(1), Mean()])
def test_a_mean_stays_float(pool: torch.nn.Module) -> None:
    """XNNPACK's INT8 one writes beyond its memory where the batch grows: a wrong answer, or the end of the process."""
    drawn = EvaluationSet({"input": np.random.default_rng(0).random((4, 3, 8, 8)).astype(np.float32)}, tuple("0123"))
    spec = ModelSpec(
        name="pools",
        module=torch.nn.Sequential(torch.nn.Conv2d(3, 4, 4, stride=4), pool, torch.nn.Flatten()).eval(),
        inputs=(Input("input", ("batch", 3, 8, 8)),),
        outputs=(Output("output"),),
        axes={"batch": Axis(1, 1, 8)},
        calibration=lambda count: drawn,
    )
    graph = lower.prepare_program(capture(spec), spec, ("batch",), fold=False).module()
    quantized, layers = executorch_int8._quantize(spec, graph, ("batch",), (), is_dynamic=False)
    means = [node for node in quantized.graph.nodes if "mean" in str(node.target) or "avg_pool" in str(node.target)]
    assert (layers, len(means)) == (1, 1)
    assert not any("quantize" in str(user.target) for user in means[0].users)


class Scatters(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows = (x > 0).to(torch.int64)
        return torch.zeros_like(x).scatter_reduce(1, rows, x, "amax", include_self=False)


def test_an_operator_without_a_kernel_is_named(tmp_path: Path) -> None:
    """ExecuTorch writes such a file, and its runtime refuses it by a number."""
    spec = ModelSpec("scatters", Scatters().eval(), (Input("x", (2, 4), low=-1),), (Output("y"),), {})
    with pytest.raises(
        ExportError, match=r"it does not have the operator 'aten\.scatter_reduce\.two', used at .*test_export.py:\d+"
    ):
        phone_models.made(executorch.TARGET, "executorch", spec, tmp_path)


def test_the_last_layers_before_an_output_that_decides_stay_float() -> None:
    spec = phone_models.arr_coc()
    graph = capture(spec, dynamic=False).exported.module()
    assert set(executorch_int8._last_layers(spec, graph)) == {
        "balancing.weigh.2",
        "information.code",
        "query_content.content",
        "query_content.question.2",
        "salience.channel",
    }
    plain = replace(spec, outputs=tuple(replace(o, role="tensor", of="") for o in spec.outputs))
    assert executorch_int8._last_layers(plain, graph) == ()


@pytest.mark.nightly(but=("empty", "cut"))
@pytest.mark.parametrize("damage", ["cut", "torn", "text", "empty"])
def test_a_damaged_file_is_a_sentence_and_no_crash_of_the_parent(damage: str, pooled: Path, tmp_path: Path) -> None:
    whole = (pooled / "executorch" / lower.ENTRY).read_bytes()
    torn = whole[:8] + bytes(byte ^ 0x5A for byte in whole[8:400]) + whole[400:]
    broken = {"cut": whole[: len(whole) // 2], "torn": torn, "text": b"no program at all", "empty": b""}
    (tmp_path / lower.ENTRY).write_bytes(broken[damage])
    commit(tmp_path, read_artifact(pooled / "executorch"))
    with pytest.raises(EdgekitError, match=r"ExecuTorch|the worker process died"):
        process.call(phone_models.answer_of, {"folder": str(tmp_path)}, modules=RUN_MODULES)


def test_attention_is_written_out_only_where_nothing_masks_it() -> None:
    import torch

    class Attends(torch.nn.Module):
        def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
            free = torch.nn.functional.scaled_dot_product_attention(x, x.flip(-2), x * 2)
            scaled = torch.nn.functional.scaled_dot_product_attention(x, x, x, scale=0.3)
            masked = torch.nn.functional.scaled_dot_product_attention(x, x, x, attn_mask=mask)
            causal = torch.nn.functional.scaled_dot_product_attention(x, x, x, is_causal=True)
            return free + scaled + masked + causal

    x, mask = torch.rand(2, 3, 5, 4, generator=torch.Generator().manual_seed(0)), torch.ones(5, 5).tril().bool()
    graph = torch.export.export(Attends(), (x, mask), strict=False).module()
    assert isinstance(graph, torch.fx.GraphModule)
    graphs.write_out_attention(graph)
    left = [n for n in graph.graph.nodes if n.target is torch.ops.aten.scaled_dot_product_attention.default]
    assert len(left) == 2
    torch.testing.assert_close(graph(x, mask), Attends()(x, mask))


def _module_answer(spec: ModelSpec, inputs: dict[str, Array]) -> tuple[ModelSpec, object]:
    import torch

    with torch.no_grad():
        return spec, spec.module(*to_tensors(spec, inputs))


def assert_close(spec: ModelSpec, name: str, folder: Path, sizes: dict[str, int]) -> None:
    target: Target = TARGETS[name]
    runtime = phone_models.opened(target, folder)
    inputs = spec.random(5, sizes)
    wanted, got = named_outputs(*_module_answer(spec, inputs)), runtime.run(inputs)
    for output, array in wanted.items():
        peak = float(np.abs(array).max())
        np.testing.assert_allclose(got[output] / peak, array / peak, rtol=0, atol=CLOSE[name], err_msg=output)
    runtime.close()


class Indexed(torch.nn.Module):
    """Rows of a table by number plus one, a slope for each of their values, and a linear layer."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.table = torch.nn.Parameter(torch.randn(9, 8))
        self.slopes = torch.nn.PReLU(8)
        self.linear = torch.nn.Linear(8, 4)

    def forward(self, numbers: torch.Tensor) -> torch.Tensor:
        return torch.as_tensor(self.linear(self.slopes(self.table[numbers + 1])))


@pytest.mark.nightly(but=("int8",))
@pytest.mark.parametrize("name", TARGETS)
def test_numbers_added_to_indices_stay_integers_and_slopes_of_rows_are_lowered(name: str, tmp_path: Path) -> None:
    numbers = np.arange(8)
    spec = ModelSpec(
        name="indexed",
        module=Indexed().eval(),
        inputs=(Input("numbers", ("batch",), dtype="int64", low=0, high=7),),
        outputs=(Output("y"),),
        axes={"batch": Axis(1, 1, 8)},
        calibration=lambda count: EvaluationSet({"numbers": numbers[:count]}, ("row",) * len(numbers[:count])),
    )
    made = phone_models.made(TARGETS[name], name, spec, tmp_path)
    mine = phone_models.opened(TARGETS[name], made).run({"numbers": numbers})["y"]
    right = spec.module(torch.from_numpy(numbers)).detach().numpy()
    np.testing.assert_allclose(mine, right, atol=CLOSE[name] * float(np.abs(right).max()))


DELEGATES = (("vulkan", "VulkanBackend", "fp32"), ("coreml", "CoreMLBackend", "fp16"))


@pytest.mark.nightly(but=("coreml",))
@pytest.mark.parametrize(("backend", "lacking", "precision"), DELEGATES)
def test_another_delegate_takes_its_part_and_is_not_verified_here(
    backend: str, lacking: str, precision: str, tmp_path: Path
) -> None:
    """Should a wheel's runtime have the backend one day, the artifact is judged, and this test is out of date."""
    if backend == "coreml":
        pytest.importorskip("coremltools", reason="no coremltools: pip install -e '.[coreml]'")
    made = phone_models.made(
        executorch.TARGET, "executorch", phone_models.pooled(), tmp_path, backend=backend, dynamic="none"
    )
    manifest = read_artifact(made)
    assert manifest.precision == precision
    took, all_of = map(int, re.findall(r"took (\d+) of (\d+) operators", manifest.notes[0])[0])
    assert 0 < took <= all_of
    assert manifest.notes[0].startswith(("Vulkan took", "Core ML took"))
    assert lacking.encode() in (made / lower.ENTRY).read_bytes()
    with pytest.raises(NotVerifiedHere, match=f"this build of ExecuTorch lacks {lacking}. Available: .*Xnnpack"):
        phone_models.opened(executorch.TARGET, made)


@pytest.mark.parametrize(
    ("backend", "lacks"), [("qnn", "Qualcomm's AI Engine Direct SDK"), ("mediatek", "mtk_converter")]
)
def test_a_delegate_that_needs_a_vendors_sdk_is_refused(backend: str, lacks: str, tmp_path: Path) -> None:
    with pytest.raises(DependencyError, match=f"executorch.backend={backend} does not work here: .*{lacks}"):
        phone_models.made(executorch.TARGET, "executorch", phone_models.pooled(), tmp_path, backend=backend)
