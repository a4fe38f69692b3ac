"""What ONNX Runtime predicts of an artifact in a provider, and that nothing calls it verified."""

from __future__ import annotations

import json
from pathlib import Path

import onnxruntime
import pytest

from tests.command import exit_code


@pytest.mark.nightly(but=("nnapi",))
@pytest.mark.parametrize("provider", ["nnapi", "coreml"])
def test_a_prediction_names_who_predicts_and_is_not_verified(
    provider: str, small_build: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert exit_code("inspect", small_build / "onnx", "--provider", provider, "--json") == 0
    answer = json.loads(capsys.readouterr().out)
    assert (answer["verified"], answer["onnxruntime"]) == (False, onnxruntime.__version__)
    assert 0 <= answer["open"]["nodes"] < answer["fixed"]["nodes"] <= answer["nodes"]
    assert answer["fixed"]["partitions"] >= 1
    assert exit_code("inspect", small_build / "onnx", "--provider", provider) == 0
    lines = capsys.readouterr().out
    assert f"onnx in {provider}: predicted by ONNX Runtime {onnxruntime.__version__}, not verified" in lines
    assert f"{answer['fixed']['nodes']} of {answer['nodes']}" in lines


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        (("--provider", "nnap"), "mean 'nnapi'"),
        (("--provider", "qnn"), "Possible: nnapi, coreml"),
        (("--provider", "nnapi", "--html", "x"), "Use only one of them"),
    ],
)
def test_what_cannot_be_asked_is_refused(
    more: tuple[str, ...], sentence: str, small_build: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert exit_code("inspect", small_build / "onnx", *more) == 2
    assert sentence in capsys.readouterr().err
