from __future__ import annotations

import logging

import pytest

from edgekit.model import capture_errors

LOGGER = "torch.fx.experimental.symbolic_shapes"
GUARD = "eval Eq(s0, 224) [guard added] (%s in forward), for more info run with TORCHDYNAMO_EXTENDED_DEBUG"


class DataDependentError(Exception):
    pass


def raised(error: Exception) -> Exception:
    """The error with a traceback that leads through this file."""
    try:
        raise error
    except Exception as caught:
        return caught


def test_the_line_of_the_user_is_named() -> None:
    error = raised(TypeError("unsupported operand\nand more that nobody reads"))
    said = capture_errors.capture_error("net", error, [])
    assert said.startswith(f"'net' cannot be captured at {__file__}:")
    assert "(raise error): TypeError: unsupported operand" in said
    assert "\n" not in said


def test_a_branch_on_values_says_what_to_use() -> None:
    said = capture_errors.capture_error("net", raised(DataDependentError("u0 > 0")), [])
    assert said.startswith(f"'net' branches or computes on values of its tensors at {__file__}:")
    assert said.endswith("use torch.where or torch.cond")


def test_an_axis_that_was_fixed_names_its_size_and_the_guard() -> None:
    text = "You marked batch as dynamic but your code specialized it to be a constant (4)." * 2
    guards = ["/usr/lib/site-packages/torch/nn/functional.py:3", "/home/me/net.py:12"]
    said = capture_errors.capture_error("net", RuntimeError(text), guards)
    assert said == "'net' fixes a dynamic axis at size 4 at /home/me/net.py:12"


@pytest.mark.parametrize(
    "guard", ["/x/site-packages/timm/vit.py:1", "/src/torch/nn/a.py:2", "torch/_prims/b.py:3", "_subclasses/c.py:4"]
)
def test_guards_of_libraries_are_nobodys_line(guard: str) -> None:
    assert capture_errors.at([guard]) == ""
    assert capture_errors.at([guard, "mine.py:4"]) == " at mine.py:4"


def test_an_error_without_words_still_has_a_sentence() -> None:
    assert capture_errors.sentence(ValueError("  one\ntwo")) == "ValueError: one"
    assert capture_errors.sentence(AssertionError()) == "AssertionError: no message"


def test_a_line_that_only_announces_the_next_is_told_with_it() -> None:
    said = capture_errors.sentence(ValueError("Found the following conflicts:\n\n  - `batch` is 1\nmore"))
    assert said == "ValueError: Found the following conflicts: - `batch` is 1"


def test_an_index_beyond_a_table_names_the_range() -> None:
    said = capture_errors.capture_error("net", IndexError("index out of range in self"), [])
    assert said.endswith("set Input(low=0, high=size of the table - 1)")


def test_guards_are_read_from_torchs_log_and_the_log_is_left_as_it_was() -> None:
    logger = logging.getLogger(LOGGER)
    before = (logger.level, list(logger.handlers), logger.propagate)
    with capture_errors.guards_added() as found:
        logger.info(GUARD, "/home/me/net.py:12")
        logger.info("something else")
    assert found == ["/home/me/net.py:12"]
    assert (logger.level, list(logger.handlers), logger.propagate) == before
    logger.info(GUARD, "/home/me/later.py:1")
    assert found == ["/home/me/net.py:12"]
