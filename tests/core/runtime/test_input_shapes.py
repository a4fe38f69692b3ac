from __future__ import annotations

import re

import numpy as np
import pytest

from edgekit.artifact.manifest import AxisInfo, Manifest, TensorInfo
from edgekit.errors import UsageError
from edgekit.runtime import input_shapes
from tests.manifests import EXPORT


def axis(default: int, dynamic: bool) -> AxisInfo:
    return AxisInfo(default=default, minimum=1, maximum=64, multiple_of=1, dynamic=dynamic)


MANIFEST = Manifest(
    name="net",
    target="coreml",
    precision="fp32",
    entry="model",
    export=EXPORT,
    inputs=(
        TensorInfo(name="images", dtype="float32", shape=("batch", 3, "height", "free")),
        TensorInfo(name="queries", dtype="float32", shape=("batch", 16)),
    ),
    axes={"batch": axis(1, dynamic=True), "height": axis(32, dynamic=False)},
    files=(),
)


def inputs(images: tuple[int, ...], queries: tuple[int, ...]) -> dict[str, np.ndarray]:
    return {"images": np.zeros(images, np.float32), "queries": np.zeros(queries, np.float32)}


def test_dynamic_and_undeclared_sizes_are_free() -> None:
    for images in ((1, 3, 32, 8), (5, 3, 32, 64)):
        input_shapes.arguments(MANIFEST, inputs(images, (images[0], 16)))


def test_a_fixed_size_that_differs_is_refused() -> None:
    for images in ((1, 3, 33, 8), (1, 1, 32, 8), (3, 32, 8)):
        said = re.escape(f"takes 'images' as [any, 3, 32, any], not {list(images)}")
        with pytest.raises(UsageError, match=said):
            input_shapes.arguments(MANIFEST, inputs(images, (1, 16)))
    with pytest.raises(
        UsageError, match=r"the artifact 'net' \(coreml\) takes 'queries' as \[any, 16\], not \[1, 17\]"
    ):
        input_shapes.arguments(MANIFEST, inputs((1, 3, 32, 8), (1, 17)))


def test_a_missing_input_is_named() -> None:
    with pytest.raises(UsageError, match=r"the artifact 'net' \(coreml\) needs the input 'queries'"):
        input_shapes.arguments(MANIFEST, {"images": np.zeros((1, 3, 32, 8), np.float32)})
