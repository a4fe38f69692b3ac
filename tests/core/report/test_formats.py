from __future__ import annotations

import math

from edgekit.artifact.metric import plain, share
from edgekit.artifact.result import Measure, Ratio
from edgekit.report import formats


def test_sizes_are_decimal_as_downloads_are() -> None:
    said = {None: "–", 0: "0 B", 999: "999 B", 1000: "1 kB", 13_191_413: "13.2 MB", 999_400_000: "999 MB"}
    for count, text in {**said, 2_500_000_000: "2.5 GB"}.items():
        assert formats.size(count) == text


def test_milliseconds_and_times_have_three_digits() -> None:
    nothing = {None: "–", float("nan"): "–"}
    for value, text in {**nothing, 0.512: "0.512 ms", 3.8166: "3.82 ms", 87.04: "87.0 ms", 1234.5: "1234 ms"}.items():
        assert formats.milliseconds(value) == text
    for value, text in {0.7349: "0.73×", 1.0: "1.00×", 9.994: "9.99×", 31.4159: "31.4×"}.items():
        assert formats.times(value) == text


def test_an_interval_has_the_sign_once() -> None:
    assert formats.interval(Ratio(baseline="onnx", value=1.0, low=0.952, high=1.049)) == "0.95 to 1.05×"


def test_a_measure_is_written_by_the_custom_of_its_metric() -> None:
    def said(metric: str, value: float | None) -> str:
        return formats.format_measure(Measure(batch="evaluation", output="y", metric=metric, value=value))

    assert said("max abs", 1.234e-5) == "1.2e-5"
    assert said("spearman", 0.99998) == "0.99998"
    assert said("cosine", 0.9999999) == ">0.99999"
    assert said("agreement", 0.9375) == "0.938"
    assert said("snr", 101.6) == "102 dB"
    assert said("max abs", None) == "not finite"
    assert formats.format_measure(None) == formats.NONE


def test_limits_are_round() -> None:
    rows = (("max abs", 1e-4, "≤ 1e-4"), ("spearman", 0.99, "≥ 0.99"), ("snr", 20.0, "≥ 20 dB"))
    for metric, limit, said in (*rows, ("max abs", 3.32e-6, "≤ 3.32e-6"), ("max abs", None, "")):
        measure = Measure(batch="evaluation", output="y", metric=metric, value=1.0, limit=limit)
        assert formats.limit(measure) == said


def test_plain_numbers() -> None:
    said = {None: "not finite", math.inf: "not finite", 0.0: "0", 1.234e-7: "1.2e-7", 0.012345: "0.0123", 12.0: "12.0"}
    for value, text in {**said, 3.8166: "3.82", 1234.5: "1234", -0.5: "-0.500", 0.00099999: "1.0e-3"}.items():
        assert plain(value) == text


def test_a_share_below_one_never_looks_like_one() -> None:
    for value in (1 - 1e-7, 0.999999, 0.99999, 0.9999, 0.995, 0.95):
        assert float(share(value).lstrip(">")) < 1
    assert share(1.0) == "1"
