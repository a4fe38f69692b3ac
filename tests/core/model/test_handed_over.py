"""Modules as people hand them over: odd names and types, attributes with a history, sizes that torch.export guards."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from edgekit.errors import CaptureError
from edgekit.judge.metrics import compare
from edgekit.model.adapter import copy_module
from edgekit.model.graph import capture
from edgekit.model.spec import Axis, Input, ModelSpec, Output
from edgekit.pipeline.given_model import resolve_model
from edgekit.pipeline.request import ModelFacts


class Queries(torch.nn.Module):
    """The best quarter of the tokens: torch.export guards that there are two or more of them."""

    def __init__(self) -> None:
        super().__init__()
        self.score = torch.nn.Linear(16, 4)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        best: torch.Tensor = self.score(tokens).amax(-1).topk(tokens.shape[1] // 4, dim=1).values
        return best


class Branches(torch.nn.Module):
    """A branch of one's own, at the size that torch.export guards too."""

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return tokens.sum(1) if tokens.shape[1] // 4 >= 2 else tokens.sum(1) * 2


def of_tokens(module: torch.nn.Module) -> ModelSpec:
    return ModelSpec(
        name="tokens",
        module=module.eval(),
        inputs=(Input("tokens", ("batch", "n", 16), low=-1),),
        outputs=(Output("y"),),
        axes={"batch": Axis(1, 1, 4), "n": Axis(20, 4, 48)},
    )


def test_a_guard_of_torch_export_is_no_branch() -> None:
    program = capture(of_tokens(Queries()))
    assert {4, 48} <= {sizes["n"] for sizes in program.proof}


def test_a_branch_beside_a_guard_is_refused() -> None:
    with pytest.raises(CaptureError, match=r"another branch|baked in|captured only"):
        capture(of_tokens(Branches()))


@pytest.mark.parametrize("key", ["class", "self", "past.0.key", "lambda"])
def test_keys_that_are_no_names_of_python_are_taken(key: str) -> None:
    class Keys(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(6, 6)

        def forward(self, batch: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
            return {"logits": self.layer(batch[key])}

    spec = resolve_model(Keys().eval(), ({key: torch.randn(2, 6)},), ModelFacts(name="keys"))
    assert capture(spec).proof


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16])
def test_an_input_of_another_float_type_is_taken_as_float32(dtype: torch.dtype) -> None:
    class Gain(torch.nn.Module):
        def forward(self, x: torch.Tensor, gain: torch.Tensor) -> torch.Tensor:
            return x * gain.float()[:, None]

    spec = resolve_model(Gain().eval(), (torch.randn(2, 4), torch.rand(2).to(dtype)), ModelFacts(name="gain"))
    program = capture(spec)
    x, gain = torch.randn(3, 4), torch.rand(3)
    answer = program.exported.module()(x, gain)
    answer = answer[0] if isinstance(answer, tuple) else answer
    torch.testing.assert_close(answer, x * gain[:, None])


def test_an_attribute_with_a_history_is_copied_without_it() -> None:
    class ZeroShot(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.words = torch.nn.Embedding(20, 8)
            self.vectors = torch.nn.functional.normalize(self.words(torch.tensor([3, 5])), dim=-1)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x @ self.vectors.T

    module = ZeroShot().eval()
    copy = copy_module(module)
    x = torch.rand(2, 8)
    torch.testing.assert_close(copy(x), module(x))
    assert copy.vectors.grad_fn is None
    assert module.vectors.grad_fn is not None  # the user's own is as it was


def test_an_empty_output_beside_another_is_no_fault() -> None:
    outputs = (Output("y"), Output("empty"))
    y, empty = np.ones((3, 2), np.float32), np.zeros((3, 0), np.float32)
    same = compare(outputs, {"y": y, "empty": empty}, {"y": y, "empty": empty}, ("a", "b", "c"))
    assert not same.faults
    assert {measure.output for measure in same.measures} == {"y"}
    wrong = compare(outputs, {"y": y, "empty": empty}, {"y": y, "empty": np.zeros((3, 1), np.float32)}, ("a", "b", "c"))
    assert wrong.faults
    alone = compare((Output("empty"),), {"empty": empty}, {"empty": empty}, ("a", "b", "c"))
    assert alone.faults


def test_a_padding_mask_is_asked_without_the_fast_path_of_eager_pytorch() -> None:
    class Encoder(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            layer = torch.nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
            self.layers = torch.nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)

        def forward(self, frames: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
            padding = torch.arange(frames.shape[1])[None] >= lengths[:, None]
            encoded: torch.Tensor = self.layers(frames, src_key_padding_mask=padding)
            return encoded

    spec = ModelSpec(
        name="encoder",
        module=Encoder().eval(),
        inputs=(
            Input("frames", ("batch", 12, 16), low=-1),
            Input("lengths", ("batch",), dtype="int64", low=4, high=12),
        ),
        outputs=(Output("y"),),
        axes={"batch": Axis(1, 1, 4)},
    )
    before = torch.backends.mha.get_fastpath_enabled()
    assert capture(spec).proof
    assert torch.backends.mha.get_fastpath_enabled() == before


def test_a_real_tensor_times_i_is_complex() -> None:
    class Waves(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            size, angle = x.chunk(2, 1)
            return torch.view_as_real(size + 1j * angle)

    spec = ModelSpec(
        "waves", Waves().eval(), (Input("x", ("batch", 6, 5), low=-1),), (Output("y"),), {"batch": Axis(1, 1, 4)}
    )
    assert capture(spec).proof


class Growing(torch.nn.Module):
    """A table of positions that is computed again for longer inputs, as many encoders keep one."""

    table: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("table", torch.zeros(0, 16), persistent=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        if len(self.table) < tokens.shape[1]:
            self.table = torch.sin(torch.arange(tokens.shape[1])[:, None] / 7 + torch.arange(16))
        return tokens + self.table[: tokens.shape[1]]


def test_a_buffer_that_grows_is_named_and_the_way_out_works() -> None:
    with pytest.raises(CaptureError, match=r"'table'.* 48"):
        capture(of_tokens(Growing()))
    module = Growing()
    module(torch.zeros(1, 48, 16))
    program = capture(of_tokens(module))
    assert {4, 48} <= {sizes["n"] for sizes in program.proof}
