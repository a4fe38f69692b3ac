"""Programs for NVIDIA GPUs: which parts compute in half precision, what is stored, and what is refused."""

from __future__ import annotations

import zipfile
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import edgekit
from edgekit.errors import ArtifactError, NotVerifiedHere, UsageError
from edgekit.model.graph import capture
from edgekit.model.spec import Axis, Input, ModelSpec, Output
from edgekit.report.recommendation import recommend
from edgekit.report.rows import read_study
from edgekit.testing import TargetContract
from edgekit_targets.inductor import cuda as torch_cuda
from edgekit_targets.inductor.cuda_runtime import TorchCudaRuntime, join_gelu, multiply_patches
from edgekit_targets.inductor.half import to_half
from tests.targets import tampering

GPU = torch.cuda.is_available()
ON_GPU = "verified" if GPU else "not verified here"


class TestTorchCuda(TargetContract):
    name = "torch-cuda"
    statuses: Mapping[str, str] = {"cuda": ON_GPU}

    def test_one_changed_weight_is_rejected(self, builds: Path, tmp_path: Path) -> None:
        def change(folder: Path) -> None:
            file = folder / torch_cuda.ENTRY
            data, weights = file.read_bytes(), tampering.weights_of("hidden.bias").astype(np.float16)
            assert data.count(weights.tobytes()) == 1
            changed = weights.copy()
            changed[0] += np.float16(tampering.CHANGE)
            repacked(file, lambda record: record.replace(weights.tobytes(), changed.tobytes()))

        row = tampering.judged(builds / "small", self.name, change, tmp_path / "small", trust_build=True)
        assert row.status == "rejected"

    def test_half_a_file_is_a_sentence(self, builds: Path, tmp_path: Path) -> None:
        def cut(folder: Path) -> None:
            tampering.cut(folder / torch_cuda.ENTRY)

        row = tampering.judged(builds / "small", self.name, cut, tmp_path / "small", trust_build=True)
        assert "not a PyTorch program or damaged" in (*row.sentences, row.error)[0]

    def test_is_not_opened_without_the_users_word(self, builds: Path) -> None:
        artifact = builds / "small" / self.name
        with pytest.raises(UsageError, match="--trust-build"):
            edgekit.load(artifact)
        assert edgekit.load(artifact, place="cpu", trust_build=True).manifest.target == self.name

    @pytest.mark.skipif(GPU, reason="this host has an NVIDIA GPU")
    def test_without_a_gpu_nobody_is_told_to_ship_it(self, builds: Path) -> None:
        artifact = builds / "small" / self.name
        with pytest.raises(NotVerifiedHere, match="sees no NVIDIA GPU"):
            edgekit.load(artifact, trust_build=True)
        study = read_study(builds / "small")
        alone = replace(study, artifacts=tuple(each for each in study.artifacts if each.target == self.name))
        assert [one.head for one in recommend(alone)] == ["Nothing verified on this host"]

    def test_names_no_path_of_the_host(self, builds: Path) -> None:
        data = (builds / "small" / self.name / torch_cuda.ENTRY).read_bytes()
        assert str(Path(edgekit.__file__).parent).encode() not in data
        assert b"site-packages" not in data


class Mixed(torch.nn.Module):
    """Products with values moved between them, an LSTM, and a softmax that must stay in fp32."""

    def __init__(self) -> None:
        super().__init__()
        self.first = torch.nn.Linear(8, 24)
        self.rnn = torch.nn.LSTM(8, 8, batch_first=True)
        self.conv = torch.nn.Conv1d(8, 8, 3, padding=1)
        self.table = torch.nn.Parameter(torch.randn(8, 8))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        packed = self.first(x).reshape(x.shape[0], 6, 3, 8)
        query, key, value = packed.unbind(2)
        mixed = torch.nn.functional.scaled_dot_product_attention(query, key, value)
        answer, _ = self.rnn(mixed)
        wide = self.conv(answer.transpose(1, 2)).transpose(1, 2)
        return torch.softmax(1e5 * wide @ self.table, -1), self.table.sum(0) + wide.mean(1)


def mixed() -> ModelSpec:
    torch.manual_seed(0)
    return ModelSpec(
        name="mixed",
        module=Mixed().eval(),
        inputs=(Input("x", ("batch", 6, 8)),),
        outputs=(Output("shares"), Output("sums")),
        axes={"batch": Axis(1, 1, 4)},
    )


@pytest.mark.parametrize(("precision", "dtype"), [("fp16", torch.float16), ("bf16", torch.bfloat16)])
def test_products_alone_compute_in_half_precision(precision: str, dtype: torch.dtype) -> None:
    spec = mixed()
    exported = capture(spec).exported
    to_half(exported, precision)
    products = {"linear", "scaled_dot_product_attention", "lstm", "conv1d", "matmul"}
    seen = set()
    for node in exported.graph.nodes:
        kind = str(node.target).removeprefix("aten.").partition(".")[0]
        value = node.meta.get("val")
        first = value[0] if isinstance(value, tuple | list) else value
        if kind in products:
            seen.add(kind)
            assert first.dtype == dtype, kind
        if kind in ("softmax", "sum", "mean", "mul", "add"):
            assert first.dtype == torch.float32, kind
    assert seen == products
    x = torch.randn(3, 6, 8)
    given, right = exported.module()(x), spec.module(x)
    assert [one.dtype for one in given] == [torch.float32, torch.float32]
    assert (given[1] - right[1]).abs().max() < 0.05


def test_weights_that_only_products_read_are_stored_in_half_precision() -> None:
    exported = capture(mixed()).exported
    to_half(exported, "fp16")
    dtypes = {name: tensor.dtype for name, tensor in exported.state_dict.items()}
    assert dtypes.pop("table") == torch.float32  # a sum reads it too
    assert set(dtypes.values()) == {torch.float16}


def test_what_is_no_program_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "program.pt2"
    file.write_bytes(b"nothing")
    with pytest.raises(ArtifactError, match=r"refuses 'program\.pt2'"):
        TorchCudaRuntime(file, {"device": "cpu"})


def repacked(file: Path, change: Callable[[bytes], bytes]) -> None:
    """Change the records of a package, their checksums with them."""
    with zipfile.ZipFile(file) as old:
        records = {name: old.read(name) for name in old.namelist()}
    with zipfile.ZipFile(file, "w") as new:
        for name, data in records.items():
            new.writestr(name, change(data))


class Written(torch.nn.Module):
    """A value that is changed in place between two products."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = torch.nn.Linear(8, 8), torch.nn.Linear(8, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.first(x)
        y[:, 0] = 5.0
        answer: torch.Tensor = self.second(y)
        return answer


def test_an_answer_that_is_a_product_and_a_value_that_is_written_in_place_hold(tmp_path: Path) -> None:
    torch.manual_seed(0)
    spec = ModelSpec(
        name="written",
        module=Written().eval(),
        inputs=(Input("x", ("batch", 8)),),
        outputs=(Output("y"),),
        axes={"batch": Axis(1, 1, 4)},
    )
    exported = capture(spec).exported
    to_half(exported, "fp16")
    torch.export.save(exported, tmp_path / "program.pt2")
    x = torch.randn(3, 8)
    given = torch.export.load(tmp_path / "program.pt2").module()(x)
    given = given[0] if isinstance(given, tuple) else given
    assert (given - spec.module(x)).abs().max() < 0.02


class Masked(torch.nn.Module):
    """Attention with a mask of the least number of fp32, as transformers' models add it."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        seen = torch.arange(6) < 4
        mask = torch.where(seen, 0.0, torch.finfo(torch.float32).min).expand(6, 6)
        return torch.nn.functional.scaled_dot_product_attention(x, x, x, attn_mask=mask) + 0


@pytest.mark.parametrize("precision", ["fp16", "bf16"])
def test_a_mask_of_the_least_number_stays_finite(precision: str) -> None:
    spec = ModelSpec(
        name="masked",
        module=Masked().eval(),
        inputs=(Input("x", ("batch", 6, 8)),),
        outputs=(Output("y"),),
        axes={"batch": Axis(1, 1, 4)},
    )
    exported = capture(spec).exported
    to_half(exported, precision)
    x = torch.randn(2, 6, 8)
    given = exported.module()(x)
    given = given[0] if isinstance(given, tuple) else given
    assert (given - spec.module(x)).abs().max() < 0.05


class Patches(torch.nn.Module):
    """Patches of three channels with a rest that no patch covers, and convolutions that are none."""

    def __init__(self) -> None:
        super().__init__()
        self.patches = torch.nn.Conv2d(3, 8, (4, 6), stride=(4, 6))
        self.wide = torch.nn.Conv2d(8, 8, 2, stride=2, bias=False)
        self.overlapping = torch.nn.Conv2d(8, 3, 3, stride=1, padding=1)
        self.points = torch.nn.Conv2d(3, 3, 1, bias=False)
        self.single = torch.nn.Conv2d(3, 2, 2, stride=2)

    def forward(self, image: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        found = self.points(self.overlapping(self.wide(self.patches(image))))
        return found, self.single(image[0])  # of one picture, without a batch


def test_patches_of_few_channels_are_multiplied() -> None:
    torch.manual_seed(0)
    axes = dict.fromkeys((0, 2, 3), torch.export.Dim.DYNAMIC)
    net = Patches().eval()
    module = torch.export.export(net, (torch.randn(2, 3, 33, 51),), dynamic_shapes=(axes,)).module()
    multiply_patches(module)
    names = [str(node.target) for node in module.graph.nodes if node.op == "call_function"]
    convolved = [name.partition(".")[0] for name in names if "conv" in name or "patch" in name]
    assert convolved == ["edgekit", "aten", "aten", "aten", "aten"]
    for shape in ((2, 3, 33, 51), (1, 3, 16, 24), (5, 3, 40, 25)):
        image = torch.randn(shape)
        for answer, expected in zip(module(image), net(image), strict=True):
            assert answer.stride() == expected.stride()
            torch.testing.assert_close(answer, expected)


class Gelus(torch.nn.Module):
    """GELU behind a linear layer, and four that stay: read in fp32, of a sum, without a bias, of a layer read twice."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.read, self.plain, self.twice, self.last = (
            torch.nn.Linear(8, 8, bias=number != 3) for number in range(6)
        )

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        gelu = torch.nn.functional.gelu
        x = self.second(gelu(self.first(x)))
        read = gelu(self.read(x))
        plain = self.last(gelu(self.plain(x)))
        twice = self.twice(x)
        return read, plain, self.last(gelu(x + read)), self.last(gelu(twice)) + twice


@pytest.mark.parametrize("approximate", ["none", "tanh"])
def test_gelu_joins_the_linear_layer_before_it(approximate: str, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    gelu = torch.nn.functional.gelu
    monkeypatch.setattr(torch.nn.functional, "gelu", lambda x: gelu(x, approximate=approximate))
    net = Gelus().eval()
    exported = torch.export.export(net, (torch.randn(2, 5, 8),), dynamic_shapes=({0: torch.export.Dim.DYNAMIC},))
    to_half(exported, "fp16")
    module = exported.module()
    join_gelu(module)
    names = [str(node.target) for node in module.graph.nodes]
    assert (names.count("edgekit.linear_gelu.default"), names.count("aten.gelu.default")) == (1, 4)
    for batch in (1, 3):
        x = torch.randn(batch, 5, 8)
        for answer, expected in zip(module(x), net(x), strict=True):
            torch.testing.assert_close(answer, expected, atol=5e-3, rtol=5e-3)


def test_gelu_stays_where_products_are_in_fp32() -> None:
    module = torch.export.export(Gelus().eval(), (torch.randn(2, 5, 8),)).module()
    join_gelu(module)
    assert [str(node.target) for node in module.graph.nodes].count("aten.gelu.default") == 5
