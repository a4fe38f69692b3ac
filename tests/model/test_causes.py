"""What converters say, as one sentence with the operator and the user's line."""

from __future__ import annotations

import re

import pytest
import torch

from edgekit.model import capture_errors as causes
from edgekit.model.graph import capture
from tests import modules


@pytest.fixture(scope="module")
def exported() -> torch.export.ExportedProgram:
    spec = modules.spec(modules.Formula(lambda linear, x: torch.linalg.svdvals(linear(x))))
    return capture(spec, dynamic=False).exported


@pytest.mark.parametrize(
    "text",
    [
        "No ONNX function found for <OpOverload(op='aten._linalg_svd', overload='default')>. Failure message: none",
        "\nOperator torch._ops.aten._linalg_svd.default is not in Core ATen opset (https://pytorch.org).",
        "Missing out variants: {'aten::_linalg_svd'}",
        "PyTorch convert function for op '_linalg_svd' not implemented.",
        "Unsupported fx node _linalg_svd, kind _linalg_svd",
        "The exported program contains unsupported ATen ops: aten._linalg_svd.default. Use register_torch_lowering()",
    ],
)
def test_the_operator_and_its_line_are_named(text: str, exported: torch.export.ExportedProgram) -> None:
    error = RuntimeError("\x1b[96mThis is step 3/3\x1b[0m. Next steps:")
    error.__cause__ = ValueError(text)
    said = causes.why(error, exported)
    line = re.escape(modules.__file__)
    assert re.match(rf"it has no operator '[\w.:]*_linalg_svd', used at {line}:\d+ \(return self\.formula", said), said
    assert said.endswith(causes.WAY_OUT)


def test_another_failure_is_its_deepest_cause_without_colours(exported: torch.export.ExportedProgram) -> None:
    error = RuntimeError("\x1b[96mThis is step 3/3\x1b[0m. Next steps:\n- Error when translating node %linear : more")
    error.__cause__ = ValueError("\x1b[31m\nthe shapes differ\x1b[0m\nand more")
    said = causes.why(error, exported)
    assert re.fullmatch(r"ValueError: the shapes differ, at .*modules\.py:\d+ \(.*\)", said), said


def test_an_operator_that_is_nowhere_in_the_program_is_named_alone(exported: torch.export.ExportedProgram) -> None:
    said = causes.why(RuntimeError("Unsupported fx node a, kind grid_sampler"), exported)
    assert said == f"it has no operator 'grid_sampler'; {causes.WAY_OUT}"


def test_a_converter_that_fails_without_a_word_is_asked_which_operator_it_was_at(
    exported: torch.export.ExportedProgram,
) -> None:
    def convert(node: torch.fx.Node) -> object:
        return node.args[7]

    def walk() -> None:
        for one in exported.graph.nodes:
            if one.op == "call_function":
                convert(one)

    with pytest.raises(IndexError) as met:
        walk()
    said = causes.why(met.value, exported)
    line = rf"{re.escape(modules.__file__)}:\d+ \(.*\)"
    wanted = rf"it fails at the operator 'aten.linear', used at {line} \(IndexError: tuple index out of range\); "
    assert re.match(wanted, said), said
    assert said.endswith(causes.WAY_OUT)
