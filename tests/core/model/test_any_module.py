"""Modules as people write them: taken, kept in a model folder, captured and recorded; or refused in a sentence."""

from __future__ import annotations

import re
import warnings
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import edgekit
from edgekit.errors import CaptureError, ModelError
from edgekit.model.adapter import named_outputs, to_tensors
from edgekit.model.folder import load_model, save_model
from edgekit.model.graph import capture
from edgekit.model.sources import resolve_model
from edgekit.model.sources.checkpoint import weights_digest
from edgekit.model.sources.module import spec_of_module
from edgekit.model.spec import ModelSpec
from edgekit.reference.record import record_reference
from edgekit.reference.store import read_reference
from tests import batch_modules, modules

TAKEN = [
    "number",
    "bfloat16",
    "float16",
    "recurrent",
    "one_image",
    "batch_of_one",
    "batch_of_four",
    "float32_inside",
    "without_parameters",
    "dictionary",
    "record",
    "any_arguments",
    "keyword_only",
    "infinities",
    "tied",
    "yes_or_no",
    "video",
    "shared",
    "time_first",
]
REFUSED = {
    "casting": (ModelError, "has torch.bfloat16 weights and fails in float32, which artifacts use at"),
    "in_place": (CaptureError, "changes its input 'x' in place, which no artifact does. Copy it first (x = x.clone())"),
    "counting": (CaptureError, "changes its own 'calls'"),
    "counting_in_torchscript": (CaptureError, "changes its own 'calls'"),
    "remembering": (CaptureError, "in an attribute that is neither parameter nor buffer"),
    "random_numbers": (CaptureError, "it draws random numbers"),
    "complex_numbers": (
        ModelError,
        "torch.complex64 in 'output', which no edge runtime supports. Return torch.view_as",
    ),
    "text": (ModelError, "returned str in 'label'"),
    "other_outputs": (ModelError, "did not return 'scores'. It returned: logits, pooled"),
    "vocabulary": (CaptureError, "looks up a row beyond its table"),
    "odd_minimum": (ModelError, "the minimum 3 is not a multiple of 2. The next multiple is 4"),
    "no_name": (ModelError, "'a b/c' is not a valid model name"),
    "no_tensor_name": (ModelError, "'the answer' is not a valid name for an input or output"),
    "same_name_twice": (ModelError, "more than one input or output 'x'"),
}


def home(factory: str) -> ModuleType:
    return batch_modules if hasattr(batch_modules, factory) else modules


def named(factory: str) -> ModelSpec:
    return resolve_model(f"{home(factory).__name__}:{factory}")


@pytest.mark.parametrize("factory", TAKEN)
def test_it_is_kept_captured_and_recorded(factory: str, tmp_path: Path) -> None:
    spec = named(factory)
    save_model(spec, tmp_path / "model")
    again = load_model(tmp_path / "model")
    assert weights_digest(again) == weights_digest(spec)
    assert [i.name for i in spec.inputs] == [i.name for i in getattr(home(factory), factory)().inputs]
    program = capture(again)
    arguments = to_tensors(spec, spec.random(3))
    with torch.no_grad():
        wanted = named_outputs(spec, spec.module(*arguments))
        got = named_outputs(spec, program.exported.module()(*arguments))
    for name, array in wanted.items():
        np.testing.assert_allclose(got[name], array, atol=1e-6)
    record_reference(spec, tmp_path / "reference")
    assert {o.name for o in spec.outputs} <= set(read_reference(tmp_path / "reference").batches[0].outputs)


@pytest.mark.parametrize("factory", REFUSED)
def test_what_cannot_be_exported_says_why_and_the_way_out(factory: str) -> None:
    kind, sentence = REFUSED[factory]
    with pytest.raises(kind, match=re.escape(sentence)) as caught:
        capture(named(factory))
    assert "\n" not in str(caught.value)


def test_outputs_are_taken_by_name() -> None:
    spec = named("dictionary")
    pooled, logits = spec.module(torch.ones(2, 6))
    assert (pooled.shape, logits.shape) == ((2,), (2, 4))


def test_weights_in_bfloat16_are_the_same_numbers_in_float32() -> None:
    theirs, ours = modules.bfloat16().module, named("bfloat16").module
    assert {p.dtype for p in ours.parameters()} == {torch.float32}
    for one, other in zip(theirs.parameters(), ours.parameters(), strict=True):
        assert torch.equal(one.float(), other)


def test_a_users_own_module_stays_as_it_was() -> None:
    net = nn.Linear(6, 4).to(torch.bfloat16).eval()
    spec = spec_of_module(net, torch.ones(1, 6, dtype=torch.bfloat16))
    assert net.weight.dtype == torch.bfloat16
    assert (spec.inputs[0].dtype, spec.outputs[0].dtype) == ("float32", "float32")


def test_an_axis_of_one_size_is_a_size() -> None:
    spec = named("batch_of_four")
    assert spec.axes == {}
    assert spec.inputs[0].shape == (4, 6)


@pytest.mark.nightly
@pytest.mark.parametrize("factory", ["batch_of_four", "float32_inside"])
def test_it_is_exported_and_verified(factory: str, tmp_path: Path) -> None:
    build = edgekit.export(f"tests.modules:{factory}", targets=["onnx"], output=tmp_path, progress="none")
    made = build["onnx"]
    assert made.status == "verified", made.sentences
    told = any("measured without float64" in sentence for sentence in made.sentences)
    assert told == (factory == "float32_inside"), made.sentences


def test_an_example_names_the_outputs() -> None:
    spec = spec_of_module(modules.record().module, torch.ones(1, 6))
    assert [o.name for o in spec.outputs] == ["logits", "others_0", "others_1"]
    spec = spec_of_module(modules.keyword_only().module, {"x": torch.ones(1, 6), "scale": torch.ones(1, 4)})
    assert [i.name for i in spec.inputs] == ["x", "scale"]


@pytest.mark.nightly
def test_causes_are_told_where_every_target_failed(tmp_path: Path) -> None:
    net = modules.Formula(lambda linear, x: torch.linalg.svdvals(linear(x)))
    build = edgekit.export(net.eval(), example=torch.ones(2, 6), targets=["onnx"], output=tmp_path, progress="none")
    assert build["onnx"].status == "failed"
    said = build["onnx"].sentences[0]
    assert "cannot translate 'formula': it does not have the operator 'aten._linalg_svd', used at " in said
    assert "modules.py:" in said
    assert said.endswith("PyTorch's own operators")
    assert "\x1b" not in said
    assert "DispatchError" in build["onnx"].report


def test_an_input_of_another_first_size_has_no_batch() -> None:
    example = (torch.rand(1, 3, 16, 16), torch.ones(4, 1), torch.tensor(1.0))
    spec = spec_of_module(batch_modules.Shared().eval(), example)
    assert [i.shape for i in spec.inputs] == [("batch", 3, 16, 16), (4, 1), ()]


def scripted(how: str, seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    net = nn.Sequential(nn.Linear(6, 4), nn.ReLU()).eval()
    with warnings.catch_warnings(action="ignore"):
        traced = torch.jit.trace(net, torch.ones(2, 6))  # type: ignore[no-untyped-call]
        script = traced if how == "traced" else torch.jit.script(net)
        return torch.jit.freeze(script) if how == "frozen" else script


@pytest.mark.nightly
@pytest.mark.parametrize("how", ["traced", "frozen"])
def test_torchscript_is_a_model(how: str, tmp_path: Path) -> None:
    wanted = ["onnx", "torchscript"]
    build = edgekit.export(
        scripted(how), example=torch.ones(2, 6), targets=wanted, output=tmp_path, progress="none", name="script"
    )
    assert {o.target: o.status for o in build.outcomes} == dict.fromkeys(wanted, "verified"), build.outcomes


def test_the_constants_of_frozen_torchscript_are_its_weights() -> None:
    one, same, other = (spec_of_module(scripted("frozen", seed), torch.ones(2, 6)) for seed in (0, 0, 1))
    assert weights_digest(one) == weights_digest(same) != weights_digest(other)


def test_torchscript_that_is_not_converted_says_which_targets_keep_it(tmp_path: Path) -> None:
    with warnings.catch_warnings(action="ignore"):
        script = torch.jit.script(modules.Repeating().eval())
    with pytest.raises(CaptureError, match=r"is TorchScript, and PyTorch cannot convert .* torchscript and"):
        edgekit.export(script, example=torch.ones(2, 6), targets=["onnx"], output=tmp_path, progress="none")


@dataclass
class Picture:
    """What `Nested` takes beside a dictionary."""

    pixels: torch.Tensor
    sizes: tuple[torch.Tensor, ...] = ()


class Nested(nn.Module):
    """Structures in and out; a number is fixed, and one answer is named as an input is."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(6, 4)

    def forward(
        self, batch: dict[str, Any], picture: Picture, scale: float = 1.0, *, shift: torch.Tensor
    ) -> dict[str, Any]:
        hidden = self.linear(batch["x"]) * scale + shift
        return {"logits": hidden, "others": (picture.pixels + picture.sizes[0], {"batch x": batch["x"]})}


@pytest.mark.nightly
def test_structures_are_inputs_and_outputs_by_name(tmp_path: Path) -> None:
    x, y, z = torch.rand(2, 6), torch.rand(2, 4), torch.rand(2, 4)
    net = Nested().eval()
    example = (({"x": x}, Picture(y, (z,)), 2.0), {"shift": y})
    build = edgekit.export(net, example=example, targets=["onnx"], output=tmp_path, progress="none")
    assert build["onnx"].status == "verified", build["onnx"].sentences
    assert build["onnx"].manifest is not None
    assert "'scale' is fixed at 2.0" in build["onnx"].manifest.notes
    got = edgekit.load(build["onnx"].path).run(
        {"batch_x": x.numpy(), "picture_pixels": y.numpy(), "picture_sizes_0": z.numpy(), "shift": z.numpy()}
    )
    wanted = net({"x": x}, Picture(y, (z,)), 2.0, shift=z)
    np.testing.assert_allclose(got["logits"], wanted["logits"].detach(), atol=1e-6)
    np.testing.assert_allclose(got["others_1_batch_x"], x, atol=1e-6)
    assert list(got) == ["logits", "others_0", "others_1_batch_x"]


class Gap(nn.Module):
    """Takes what its example leaves out in the middle."""

    def forward(self, x: torch.Tensor, y: torch.Tensor | None = None, z: torch.Tensor | None = None) -> torch.Tensor:
        return x + (y if y is not None else 0) - (z if z is not None else 0)


def test_any_names_are_given_in_a_pair() -> None:
    class Named(torch.nn.Module):
        def forward(self, **given: torch.Tensor) -> torch.Tensor:
            return given["a"] - given["b"]

    spec = spec_of_module(Named().eval(), ((), {"a": torch.ones(1, 2), "b": torch.zeros(1, 2)}))
    assert [i.name for i in spec.inputs] == ["a", "b"]


def test_an_example_with_a_gap_is_given_by_name() -> None:
    spec = spec_of_module(Gap().eval(), {"x": torch.ones(1, 6), "z": torch.ones(1, 6)})
    assert not spec.module(torch.ones(1, 6), torch.ones(1, 6))[0].any()


@pytest.mark.parametrize("value", [torch.ones(2, 6, dtype=torch.complex64), torch.eye(6).to_sparse()])
def test_inputs_that_no_runtime_takes_are_refused(value: torch.Tensor) -> None:
    with pytest.raises(ModelError, match=r"the example's 'x' is torch.*, which no edge runtime takes"):
        spec_of_module(Gap().eval(), value)


def test_weights_of_a_class_of_their_own_are_plain_ones(tmp_path: Path) -> None:
    with warnings.catch_warnings(action="ignore"):
        try:
            from torchao.quantization import Int8WeightOnlyConfig, quantize_
        except ImportError:
            pytest.skip("needs torchao: pip install -e '.[executorch]'")
        net = nn.Sequential(nn.Linear(64, 32)).eval()
        quantize_(net, Int8WeightOnlyConfig())
    spec = spec_of_module(net, torch.ones(1, 64))
    assert torch.equal(spec.module(torch.ones(1, 64)), net(torch.ones(1, 64)))
    assert {tensor.dtype for tensor in spec.module.state_dict().values()} == {torch.int8, torch.float32}
    save_model(spec, tmp_path / "model")
    assert torch.equal(load_model(tmp_path / "model").module(torch.ones(1, 64)), net(torch.ones(1, 64)))


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore:torch.quantize_per_tensor")
def test_kernels_of_torch_ao_are_refused() -> None:
    net = torch.ao.quantization.quantize_dynamic(nn.Sequential(nn.Linear(6, 4)).eval())  # type: ignore[no-untyped-call]
    with pytest.raises(ModelError, match=r"was changed by torch.ao.quantization \('0' is Linear\)"):
        spec_of_module(net, torch.ones(1, 6))


def test_a_module_that_fails_at_another_size_says_at_which() -> None:
    """The first dimension of a graph's nodes is no batch: edges name nodes that a smaller one has not."""

    class Nodes(torch.nn.Module):
        def forward(self, x: torch.Tensor, edges: torch.Tensor) -> torch.Tensor:
            return x[edges[0]] + x[edges[1]]

    spec = spec_of_module(Nodes().eval(), (torch.rand(10, 8), torch.tensor([[0, 9], [3, 4]])))
    with pytest.raises(CaptureError, match=r"run at batch 2: set axes to the dimensions that vary, \{\} for none"):
        capture(spec)
