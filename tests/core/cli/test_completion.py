"""What the shell completes, by the functions and through the command's own completion."""

from __future__ import annotations

import subprocess
import sys

import pytest

from edgekit import registry
from edgekit.cli.completion import option_values, selections
from edgekit.cli.main import app

HEAVY = ("torch", "onnx", "onnxruntime", "coremltools", "executorch")


def test_targets_and_groups() -> None:
    found = selections("")
    assert set(registry.available()) | {"all", "mobile"} <= set(found)
    assert len(found) == len(set(found))
    assert selections("mob") == ["mobile"]
    assert selections("onnx-fp") == ["onnx-fp16"]


@pytest.mark.parametrize(
    ("incomplete", "found"),
    [
        ("onnx.", ["onnx.opset=17", "onnx.opset=20"]),
        ("coreml.topk=c", ["coreml.topk=cut"]),
        ("onnx-int8-static.reduce", ["onnx-int8-static.reduce_range=yes", "onnx-int8-static.reduce_range=no"]),
        ("onnx-int8-static.cal", ["onnx-int8-static.calibration="]),
        ("nothing.", []),
    ],
)
def test_options_and_their_values(incomplete: str, found: list[str]) -> None:
    assert option_values(incomplete)[: len(found)] == found
    assert bool(option_values(incomplete)) == bool(found)


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ("edgekit quantize --search ", ["quick", "full", "none"]),
        ("edgekit quantize --method m", ["minmax"]),
        ("edgekit reference --device ", ["cpu", "cuda"]),
        ("edgekit assets i", ["ios"]),
        ("edgekit assets ios build --target coreml-", ["coreml-int8"]),
        ("edgekit export arr-coc-t", ["arr-coc-tiny"]),
        ("edgekit export -t onnx-f", ["onnx-fp16"]),
        ("edgekit export -O coreml.topk=", ["coreml.topk=cut", "coreml.topk=inside"]),
    ],
)
def test_the_words_that_a_command_takes(
    words: str, found: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As bash asks: `_EDGEKIT_COMPLETE=complete_bash` and the words so far."""
    monkeypatch.setenv("_EDGEKIT_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", words)
    monkeypatch.setenv("COMP_CWORD", str(words.count(" ")))
    with pytest.raises(SystemExit):
        app(prog_name="edgekit")
    assert sorted(capsys.readouterr().out.split()) == sorted(found)


def test_every_completed_value_is_possible() -> None:
    targets, _ = registry.loadable()
    for text in option_values(""):
        name, _, value = text.partition("=")
        target, _, option = name.rpartition(".")
        registry.parse_options(target, targets[target], {option: value})


def test_completing_imports_nothing_heavy() -> None:
    code = (
        "import sys; from edgekit.cli import completion as c\n"
        "assert c.model_names('') and c.target_names('') and c.selections('') and c.option_values('')\n"
        f"print([m for m in {HEAVY!r} if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
