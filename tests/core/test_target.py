from dataclasses import replace

import pytest

from edgekit.judge.limits import FP16, FP32, INT8
from edgekit.target import Place
from tests.manifests import EXPORT, manifest

STRICT = replace(INT8, name="ours")


@pytest.mark.parametrize("precision", ["int8", "fp32"])
def test_a_place_judges_by_its_own_tolerance(precision: str) -> None:
    """Also a plug-in's target of INT8 that promises more than INT8 has to."""
    assert Place(name="npu", tolerance=STRICT).tolerance_of(manifest(precision=precision)) == STRICT


def test_an_option_s_precision_has_its_limits() -> None:
    place = Place(name="cpu", tolerance=FP32, limits={"fp16": FP16})
    assert [place.tolerance_of(manifest(precision=one)) for one in ("fp32", "fp16")] == [FP32, FP16]


def test_what_the_model_itself_rounds_is_judged_as_int8() -> None:
    made = manifest(precision="int8", export=EXPORT.model_copy(update={"self_quantized": True}))
    assert Place(name="cpu", tolerance=FP32, limits={"int8": STRICT}).tolerance_of(made) == INT8
