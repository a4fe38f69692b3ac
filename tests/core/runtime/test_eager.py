from __future__ import annotations

import numpy as np
import pytest
import torch

from edgekit.model.spec import Axis, Input, ModelSpec, Output
from edgekit.runtime.eager import EagerRuntime
from edgekit.testing import small_model
from tests import modules


class Counting(torch.nn.Module):
    """Sums floats in their own dtype, and passes integers through."""

    def forward(self, x: torch.Tensor, n: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return x.sum(1), n + 1


def counting() -> ModelSpec:
    return ModelSpec(
        name="counting",
        module=Counting().eval(),
        inputs=(Input("x", ("batch", 4)), Input("n", ("batch",), dtype="int64")),
        outputs=(Output("sum"), Output("next", dtype="int64")),
        axes={"batch": Axis(1, 1, 8)},
    )


def test_answers_are_the_modules_by_the_names_of_the_outputs() -> None:
    spec = small_model()
    inputs = spec.random(0)
    with torch.inference_mode():
        expected = spec.module(*(torch.from_numpy(inputs[i.name]) for i in spec.inputs))
    answer = EagerRuntime(spec).run(inputs)
    assert list(answer) == ["relevance", "budgets", "indices", "tokens"]
    for name, right in zip(answer, expected, strict=True):
        np.testing.assert_array_equal(answer[name], right.numpy())


def test_double_precision_computes_in_double_and_leaves_integers_alone() -> None:
    small = np.array([[1.0, 1e-9, 0.0, 0.0]], np.float64)
    inputs = {"x": small.astype(np.float32), "n": np.array([41])}
    assert EagerRuntime(counting()).run(inputs)["sum"].tolist() == [1.0]
    answer = EagerRuntime(counting(), double=True).run(inputs)
    assert answer["sum"][0] == pytest.approx(1 + 1e-9, abs=1e-12)
    assert answer["sum"][0] != 1.0
    assert answer["next"].dtype == np.int64
    assert answer["next"].tolist() == [42]


def test_the_device_names_threads_and_torch_uses_them(monkeypatch: pytest.MonkeyPatch) -> None:
    before = torch.get_num_threads()
    try:
        monkeypatch.setenv("EDGEKIT_THREADS", "3")
        assert EagerRuntime(counting()).device == f"PyTorch {torch.__version__} eager, CPU, 3 threads"
        assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(before)


@pytest.mark.gpu
def test_a_gpu_answers_as_the_cpu_does() -> None:
    spec = small_model()
    inputs = spec.random(0)
    right = EagerRuntime(spec).run(inputs)
    runtime = EagerRuntime(small_model(), "cuda")
    assert torch.cuda.get_device_name() in runtime.device
    np.testing.assert_allclose(runtime.run(inputs)["relevance"], right["relevance"], atol=1e-4)


class Spectrum(torch.nn.Module):
    """A product with complex weights, as in a Fourier neural operator."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.tensor([1 + 2j, 3 - 1j], dtype=torch.complex64))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.view_as_real(torch.complex(x[:, :2], x[:, 2:]) * self.weight).flatten(1)


@pytest.mark.parametrize("double", [False, True])
def test_complex_weights_keep_their_imaginary_parts(double: bool) -> None:
    spec = modules.of_rows("spectrum", Spectrum(), 4)
    answer = EagerRuntime(spec, double=double).run({"x": np.array([[1, 0, 0, 1]], np.float32)})["y"]
    np.testing.assert_array_equal(answer, [[1, 2, 1, 3]])  # 1 (1 + 2i), i (3 - i)
    assert answer.dtype == (np.float64 if double else np.float32)
