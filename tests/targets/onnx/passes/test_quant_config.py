"""Configurations of static quantization: equal ones have equal keys, and tables tell them apart."""

from __future__ import annotations

import numpy as np

from edgekit_targets.onnx.passes.groups import METHODS, ObservedRange, QuantConfig


def test_equal_configurations_have_equal_keys_and_others_have_not() -> None:
    plain = QuantConfig()
    others = [
        QuantConfig(method="entropy"),
        QuantConfig(activation="int8"),
        QuantConfig(per_channel=False),
        QuantConfig(reduce_range=True),
        plain.keeping("head"),
    ]
    assert plain.key == QuantConfig().key
    assert len({plain.key, *(other.key for other in others)}) == len({plain.name, *(o.name for o in others)}) == 6


def test_the_order_of_groups_in_float_does_not_matter() -> None:
    assert QuantConfig().keeping("b", "a") == QuantConfig(floats=("z",)).keeping("a", "b")
    assert QuantConfig().keeping("b", "a").name == "minmax, uint8, 2 groups in float"


def test_peaks_are_the_larger_of_both_ends() -> None:
    seen = ObservedRange(dict.fromkeys(METHODS, (-3.0, 2.0)), np.array([-3.0, -1.0]), np.array([1.0, 2.0]), rows=1)
    assert seen.peaks.tolist() == [3.0, 2.0]
