"""An answer as a person reads it: the best classes by name."""

from __future__ import annotations

import numpy as np
import pytest

from edgekit.artifact.manifest import Manifest, TensorInfo
from edgekit.errors import UsageError
from edgekit.model.spec import Array, Input, Output
from edgekit.pipeline.loaded import check_inputs
from edgekit_serve.forms import answer_of

CLASSES = ("apple", "banana", "cherry", "date", "elder", "fig")


def manifest(role: str = "logits", classes: tuple[str, ...] = CLASSES) -> Manifest:
    pixels = TensorInfo.of_input(Input("pixels", (1, 3, 4, 4), kind="image"))
    output = TensorInfo.of_output(Output("y", role=role, classes=classes), (1, 6))  # type: ignore[arg-type]  # any role
    return Manifest.model_construct(name="fruit", target="onnx", inputs=(pixels,), outputs=(output,), axes={}, sizes=())


def top(values: Array, role: str = "logits", classes: tuple[str, ...] = CLASSES) -> object:
    return answer_of(manifest(role, classes), {"y": values}, (4, 4)).get("top")


def test_the_five_likeliest_classes_have_their_names_and_probabilities() -> None:
    logits = np.log(np.array([[0.1, 0.05, 0.6, 0.15, 0.02, 0.08]], np.float32))
    found = top(logits)
    assert isinstance(found, list)
    assert [one["name"] for one in found] == ["cherry", "date", "apple", "fig", "banana"]
    assert [one["class"] for one in found] == [2, 3, 0, 5, 1]
    assert found[0]["probability"] == pytest.approx(0.6, abs=1e-6)
    shares = top(np.exp(logits), "probabilities")
    assert isinstance(shares, list)
    assert shares[0]["probability"] == pytest.approx(0.6, abs=1e-6)


def test_classes_without_names_are_numbers_and_other_outputs_have_none() -> None:
    found = top(np.array([[1.0, 3.0]], np.float32), classes=())
    assert isinstance(found, list)
    assert [sorted(one) for one in found] == [["class", "probability"]] * 2
    assert top(np.zeros((1, 6), np.float32), "tensor", ()) is None
    assert top(np.zeros((1, 6, 4, 4), np.float32)) == []


@pytest.mark.parametrize(("low", "high"), [(0, 255), (-2.2, 2.7)])
def test_pixels_of_another_scale_are_refused(low: float, high: float) -> None:
    pixels = np.linspace(low, high, 48, dtype=np.float32).reshape(1, 3, 4, 4)
    with pytest.raises(UsageError, match=r"'pixels' has pixels from .* 'fruit' takes 0 to 1"):
        check_inputs(manifest(), {"pixels": pixels})
    span = np.linspace(-0.1, 1.1, 48, dtype=np.float32).reshape(1, 3, 4, 4)
    check_inputs(manifest(), {"pixels": span})
