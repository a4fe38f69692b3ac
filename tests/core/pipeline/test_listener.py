"""How long targets took, for the estimate of the next run."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgekit.pipeline.context import DURATIONS, read_durations, remaining, words, write_duration


def test_what_is_written_is_read(tmp_path: Path) -> None:
    write_duration(tmp_path / "cache", "onnx", 12.34)
    write_duration(tmp_path / "cache", "web", 90)
    write_duration(tmp_path / "cache", "onnx", 11)
    assert read_durations(tmp_path / "cache") == {"onnx": 11.0, "web": 90.0}


@pytest.mark.parametrize("text", [None, "", "[]", "[1]", '{"onnx": "soon"}', '{"onnx": null}'])
def test_an_unusable_file_is_no_file(tmp_path: Path, text: str | None) -> None:
    if text is not None:
        (tmp_path / DURATIONS).write_text(text)
    assert read_durations(tmp_path) == {}


def test_the_rest_is_known_only_if_every_target_is() -> None:
    expected = {"onnx": 10.0, "web": 60.0}
    assert remaining(expected, ("onnx", "web"), {"onnx": 4.0}) == 66.0
    assert remaining(expected, ("web",), {"web": 90.0}) == 0.0
    assert remaining(expected, ("web", "coreml"), {}) is None


@pytest.mark.parametrize(("seconds", "said"), [(0.4, "0 s"), (59.4, "59 s"), (59.6, "1 min 00 s"), (125, "2 min 05 s")])
def test_durations_in_words(seconds: float, said: str) -> None:
    assert words(seconds) == said
