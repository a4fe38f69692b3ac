"""What capture and converters say, as one sentence with the operator and the user's line."""

from __future__ import annotations

import contextlib
import logging
import re
from typing import Any

import pytest
import torch

from edgekit.errors import CaptureError, ExportError
from edgekit.model import capture_errors
from edgekit.model.capture_errors import Guard, refuse_bfloat16, refuse_open_pools
from edgekit.model.graph import capture
from edgekit.model.spec import Axis, Input, ModelSpec, Output
from edgekit.pipeline.given_model import resolve_model
from edgekit.pipeline.request import ModelFacts
from tests import modules

LOGGER = "torch.fx.experimental.symbolic_shapes"
GUARD = "eval Eq(s0, 224) [guard added] (%s in forward), for more info run with TORCHDYNAMO_EXTENDED_DEBUG"


def test_an_axis_that_was_fixed_names_its_size_and_the_guard() -> None:
    text = "You marked batch as dynamic but your code specialized it to be a constant (4)." * 2
    guards = [Guard("/x/site-packages/timm/vit.py:1", own=False), Guard("/home/me/net.py:12")]
    said = capture_errors.capture_error("net", RuntimeError(text), guards)
    assert said == "'net' fixes a dynamic axis at size 4 at /home/me/net.py:12"


def test_guards_of_libraries_are_nobodys_line_unless_they_fix_a_size() -> None:
    library, fixing = Guard("mine.py:1", own=False), Guard("mine.py:2", own=False, fixes=True)
    assert capture_errors.at([library]) == ""
    assert capture_errors.at([library, fixing]) == " at mine.py:2"
    assert capture_errors.at([library, fixing, Guard("mine.py:4")]) == " at mine.py:4"


class Steps(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        state = torch.zeros_like(x[:, 0])
        for step in range(x.shape[1]):
            state = state + x[:, step]
        return state


def test_a_size_that_is_fixed_names_the_whole_path_and_the_users_line() -> None:
    axes = {"batch": Axis(1, 1, 4), "steps": Axis(5, 2, 8)}
    spec = ModelSpec("net", Steps().eval(), (Input("x", ("batch", "steps", 2)),), (Output("y"),), axes)
    with pytest.raises(CaptureError, match=rf"fixes a dynamic axis at size \d at {re.escape(__file__)}:\d+ ") as caught:
        capture(spec)
    assert "for step in range(x.shape[1]):" in str(caught.value)


class Packed(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.GRU(1, 2, batch_first=True)

    def forward(self, x: torch.Tensor) -> Any:
        lengths = (x[:, 0] > 0).long() + 1
        packed = torch.nn.utils.rnn.pack_padded_sequence(x[..., None], lengths, True, False)
        answer, _ = self.layer(packed)
        return answer.data


def test_packed_sequences_are_named_with_the_way_out() -> None:
    said = r"'\w+' packs sequences by their lengths at .*self\.layer\(packed\).*padded sequences"
    with pytest.raises(CaptureError, match=said) as refused:
        capture(modules.spec(Packed().eval()))
    assert "\n" not in str(refused.value)


def test_an_error_without_words_still_has_a_sentence() -> None:
    assert capture_errors.sentence(ValueError("  one\ntwo")) == "ValueError: one"
    assert capture_errors.sentence(AssertionError()) == "AssertionError: no message"


def test_a_line_that_only_announces_the_next_is_told_with_it() -> None:
    said = capture_errors.sentence(ValueError("Found the following conflicts:\n\n  - `batch` is 1\nmore"))
    assert said == "ValueError: Found the following conflicts: - `batch` is 1"


def test_guards_are_read_from_torchs_log_and_the_log_is_left_as_it_was() -> None:
    logger = logging.getLogger(LOGGER)
    before = (logger.level, list(logger.handlers), logger.propagate)
    with capture_errors.collect_guards() as found:
        logger.info(GUARD, "/home/me/net.py:12")
        logger.info("something else")
    (guard,) = found
    assert guard.where.startswith(f"{__file__}:")  # of the code that runs, whatever path the log tells
    assert (guard.own, guard.fixes) == (False, True)
    assert (logger.level, list(logger.handlers), logger.propagate) == before
    logger.info(GUARD, "/home/me/later.py:1")
    assert found == [guard]


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
    said = capture_errors.why(error, exported)
    line = re.escape(modules.__file__)
    assert re.match(
        rf"it does not have the operator '[\w.:]*_linalg_svd', used at {line}:\d+ \(return self\.formula", said
    ), said
    assert said.endswith(capture_errors.WAY_OUT)


def test_a_model_that_rounds_itself_is_not_sent_where_it_is_refused_too(exported: torch.export.ExportedProgram) -> None:
    said = capture_errors.why(
        ValueError("Unsupported fx node q, kind quantized_decomposed.quantize_per_tensor"), exported
    )
    assert said.endswith(f"; {capture_errors.ROUNDED}")


@pytest.mark.parametrize(
    ("formula", "lacking"),
    [
        (lambda linear, x: linear(x).median(-1).values, "aten.median"),
        (lambda linear, x: torch.linalg.inv(linear(x) @ linear(x).mT), "aten.linalg_inv_ex"),
        (lambda linear, x: torch.linalg.solve(linear(x) @ linear(x).mT, x @ x.mT), "aten._linalg_solve_ex"),
    ],
)
def test_the_line_of_what_was_taken_apart_is_named(formula: Any, lacking: str) -> None:
    taken = capture(modules.spec(modules.Formula(formula)), dynamic=False).exported
    assert capture_errors.line_using(taken, lacking).startswith(f"{modules.__file__}:")


def test_another_failure_is_its_deepest_cause_without_colours(exported: torch.export.ExportedProgram) -> None:
    error = RuntimeError("\x1b[96mThis is step 3/3\x1b[0m. Next steps:\n- Error when translating node %linear : more")
    error.__cause__ = ValueError("\x1b[31m\nthe shapes differ\x1b[0m\nand more")
    said = capture_errors.why(error, exported)
    assert re.fullmatch(r"ValueError: the shapes differ, at .*modules\.py:\d+ \(.*\)", said), said


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
    said = capture_errors.why(met.value, exported)
    line = rf"{re.escape(modules.__file__)}:\d+ \(.*\)"
    wanted = rf"it fails at the operator 'aten.linear', used at {line} \(IndexError: tuple index out of range\); "
    assert re.match(wanted, said), said
    assert said.endswith(capture_errors.WAY_OUT)


def test_complex_numbers_are_named_where_a_converter_has_none() -> None:
    spec = modules.spec(modules.Formula(lambda linear, x: torch.fft.fft(linear(x)).tan().abs()))
    exported = capture(spec, dynamic=False).exported
    said = capture_errors.why(RuntimeError("tensors of mismatched dtypes:"), exported)
    line = rf"{re.escape(modules.__file__)}:\d+ \(.*\)"
    wanted = rf"the program has complex numbers, starting at 'aten\.fft_fft' at {line} \(RuntimeError: tensors"
    assert re.match(wanted, said), said
    lacking = capture_errors.why(RuntimeError("Missing out variants: {'aten::fft_fft'}"), exported)
    assert "(the program has complex numbers, starting at 'aten.fft_fft'); write that line" in lacking


def test_a_transform_along_an_open_axis_is_named() -> None:
    axes = {**modules.BATCH, "length": Axis(8, 4, 16)}
    module = modules.Formula(lambda linear, x: torch.fft.rfft(x).abs().sum(-1)).eval()
    exported = capture(ModelSpec("open", module, (Input("x", ("batch", "length")),), (Output("y"),), axes)).exported
    said = capture_errors.why(RuntimeError("tensors of mismatched dtypes:"), exported)
    line = rf"{re.escape(modules.__file__)}:\d+ \(.*\)"
    assert re.match(rf"'aten\.fft_rfft' at {line} goes along an axis of open length \(RuntimeError: tensors", said), (
        said
    )
    assert "axes" in said
    lacking = capture_errors.why(RuntimeError("PyTorch convert function for op 'fft_rfft' not implemented"), exported)
    assert "goes along an axis of open length" in lacking


def test_an_open_transform_is_not_blamed_for_another_operator() -> None:
    axes = {**modules.BATCH, "length": Axis(8, 4, 16)}
    module = modules.Formula(lambda linear, x: torch.fft.rfft(x).abs().sum(-1).erfinv()).eval()
    exported = capture(ModelSpec("open", module, (Input("x", ("batch", "length")),), (Output("y"),), axes)).exported
    lacking = RuntimeError("No ONNX function found for <OpOverload(op='aten.erfinv', overload='default')>.")
    said = capture_errors.why(lacking, exported)
    assert said.startswith("it does not have the operator 'aten.erfinv', used at "), said
    failing = RuntimeError("Error when translating node %erfinv : more")
    failing.__cause__ = ValueError("the shapes differ")
    assert capture_errors.why(failing, exported).startswith("ValueError: the shapes differ, at ")


@pytest.mark.parametrize("enabled", [True, False])
def test_arithmetic_in_bfloat16_is_refused_with_its_line_and_the_way_out_works(enabled: bool) -> None:
    class Autocast(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = torch.nn.Linear(6, 6)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            with torch.autocast("cpu", dtype=torch.bfloat16, enabled=enabled):
                y: torch.Tensor = self.linear(x)
            return y.float()

    module = Autocast().eval()
    program = capture(resolve_model(module, torch.zeros(2, 6), ModelFacts())).exported
    expected = pytest.raises(ExportError, match=r"test_capture_errors\.py:\d+.*enabled=False")
    with expected if enabled else contextlib.nullcontext():
        refuse_bfloat16("autocast", program)


@pytest.mark.parametrize(("sizes", "is_taken"), [("8..16", False), ("9..18/3", True)])
def test_adaptive_pooling_of_open_sizes_is_taken_at_multiples(sizes: str, is_taken: bool) -> None:
    module = torch.nn.Sequential(torch.nn.AdaptiveAvgPool2d((3, 1)), torch.nn.Flatten()).eval()
    spec = resolve_model(module, torch.zeros(2, 3, 15, 7), ModelFacts(axes={"input": f"0=batch:1..2,2=h:{sizes}@15"}))
    program = capture(spec).exported
    with contextlib.nullcontext() if is_taken else pytest.raises(ExportError, match=r"\.\.MAX/3"):
        refuse_open_pools(spec, program)
