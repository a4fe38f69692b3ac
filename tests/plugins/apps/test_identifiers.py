from __future__ import annotations

import pytest

from edgekit.artifact.manifest import AxisInfo, TensorInfo
from edgekit_apps.bundle import identifier, sizes
from tests.manifests import manifest


@pytest.mark.parametrize(
    ("name", "made"),
    [
        ("arr-coc-tiny", "ArrCocTiny"),
        ("arr-coc-0.1", "ArrCoc0_1"),
        ("images", "Images"),
        ("last_hidden_state", "Last_hidden_state"),
        ("MobileViT", "MobileViT"),
        ("7b-chat", "Model7bChat"),
        ("_hidden", "Model_hidden"),
    ],
)
def test_a_name_becomes_a_type_of_kotlin_and_swift(name: str, made: str) -> None:
    assert identifier(name) == made
    assert made.isidentifier()
    assert made[0].isalpha()


def test_sizes_are_named_by_their_axis_or_their_place() -> None:
    def axis(default: int) -> AxisInfo:
        return AxisInfo(default=default, minimum=1, maximum=512, multiple_of=1, dynamic=True)

    made = manifest(axes={"batch": axis(1), "height": axis(224), "width": axis(160)})
    image = TensorInfo(name="images", dtype="float32", shape=("batch", 3, "height", "width"))
    assert sizes(made, image) == {"SIZE_1": 3, "HEIGHT": 224, "WIDTH": 160}
    assert sizes(made, TensorInfo(name="y", dtype="float32", shape=("batch", "unknown", 7))) == {"SIZE_2": 7}
    assert sizes(made, TensorInfo(name="z", dtype="float32")) == {}
