"""What the shell completes, by the functions and through the command's own completion."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from edgekit import registry
from edgekit.cli.completion import option_values, selections

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
        ("edgekit promote s3://bucket/small --to p", ["production"]),
        ("edgekit assets ios build --target coreml-", ["coreml-int8"]),
    ],
)
def test_the_words_that_a_command_takes(words: str, found: list[str]) -> None:
    settings = {"_EDGEKIT_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(words.count(" "))}
    code = "import sys; sys.argv = ['edgekit']; from edgekit.cli.main import main; main()"
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, env=os.environ | settings, capture_output=True, text=True, check=False)
    assert sorted(done.stdout.split()) == sorted(found), done.stderr


def test_every_completed_value_is_possible() -> None:
    targets, _ = registry.loadable()
    for text in option_values(""):
        name, _, value = text.partition("=")
        target, _, option = name.rpartition(".")
        registry.parsed_options(target, targets[target], {option: value})


@pytest.mark.parametrize(
    ("words", "last", "found"),
    [
        ("edgekit export arr-coc-t", 2, "arr-coc-tiny"),
        ("edgekit export -t onnx-f", 3, "onnx-fp16"),
        ("edgekit export -O coreml.topk=", 3, "coreml.topk=inside"),
        ("edgekit targets onnx-f", 2, "onnx-fp16"),
    ],
)
def test_the_shell_is_told(words: str, last: int, found: str) -> None:
    """As bash asks: `_EDGEKIT_COMPLETE=complete_bash` and the words so far."""
    asked = {"_EDGEKIT_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(last)}
    code = "import sys; sys.argv = ['edgekit']; from edgekit.cli.main import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, env=os.environ | asked
    )
    assert found in done.stdout.split(), done.stderr


def test_completing_imports_nothing_heavy() -> None:
    code = (
        "import sys; from edgekit.cli import completion as c\n"
        "assert c.model_names('') and c.target_names('') and c.selections('') and c.option_values('')\n"
        f"print([m for m in {HEAVY!r} if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
