from __future__ import annotations

import logging
import os
import sys
import warnings

import pytest

from edgekit.runtime.logs import caught, quiet


def test_warnings_and_progress_are_not_heard(
    capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    with quiet():
        logging.getLogger("coremltools").warning("torch 2.13 is untested")
        print("Running MIL passes: 50 %", file=sys.stderr)
        warnings.warn("use another function", DeprecationWarning, stacklevel=1)
        warnings.warn("isinstance(treespec, LeafSpec) is deprecated", FutureWarning, stacklevel=1)
        warnings.warn("overflow encountered in cast", RuntimeWarning, stacklevel=1)
        warnings.warn("Implicitly cleaning up <TemporaryDirectory>", ResourceWarning, stacklevel=1)
    assert caplog.records == []
    assert capsys.readouterr().err == ""


def test_errors_are_heard(caplog: pytest.LogCaptureFixture) -> None:
    with quiet():
        logging.getLogger("coremltools").error("the weights are lost")
    assert [record.message for record in caplog.records] == ["the weights are lost"]


@pytest.mark.parametrize(
    ("text", "kind"), [("divide by zero encountered in log", RuntimeWarning), ("soon gone", FutureWarning)]
)
def test_other_warnings_are_heard(text: str, kind: type[Warning]) -> None:
    with quiet(), pytest.raises(kind, match=text):
        warnings.warn(text, kind, stacklevel=1)


def test_all_is_as_before_even_after_an_error(caplog: pytest.LogCaptureFixture) -> None:
    before = logging.root.manager.disable, sys.stderr

    def fails() -> None:
        with quiet():
            raise ValueError("no such operator")

    with pytest.raises(ValueError, match="no such operator"):
        fails()
    assert (logging.root.manager.disable, sys.stderr) == before
    logging.getLogger("edgekit").warning("heard again")
    assert [record.message for record in caplog.records] == ["heard again"]


def test_what_is_written_below_python_is_caught_and_then_no_more(capfd: pytest.CaptureFixture[str]) -> None:
    def fails() -> None:
        os.write(2, b"[method.cpp:3] the sizes differ\n")
        raise RuntimeError("error 0x12")

    assert caught(fails) == "[method.cpp:3] the sizes differ\n"
    os.write(2, b"heard\n")
    assert capfd.readouterr().err == "heard\n"
