"""The JUnit file fits its schema whatever is in a build, and counts what it holds."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from edgekit.artifact.fact import Code, fact
from edgekit.artifact.result import EvaluationResult
from edgekit.report.rows import read_study
from edgekit.report.text import to_junit
from tests.command import exit_code

SCHEMA = Path(__file__).with_name("junit.xsd")


def fits(text: str) -> None:
    schema = pytest.importorskip("xmlschema", reason="validates JUnit files: pip install -e '.[test]'")
    schema.XMLSchema(str(SCHEMA)).validate(text)


def cases(text: str) -> dict[tuple[str, str], ElementTree.Element]:
    return {(c.attrib["classname"], c.attrib["name"]): c for c in ElementTree.fromstring(text).iter("testcase")}  # noqa: S314 - our own


def test_one_case_an_artifact_and_place(filled: Any) -> None:
    study = read_study(filled.folder)
    text = to_junit(study)
    fits(text)
    found = cases(text)
    assert len(found) == len(study.rows) == 11
    root = ElementTree.fromstring(text)  # noqa: S314 - our own
    assert (root.attrib["tests"], root.attrib["failures"]) == ("11", "1")
    rejected = found["arr-coc-tiny.onnx-int8-static", "cpu"].find("failure")
    assert rejected is not None
    assert rejected.attrib["message"].startswith("spearman of 'relevance' is")
    skipped = found["arr-coc-tiny.coreml", "device"].find("skipped")
    assert skipped is not None
    assert "copy the folder to a Mac" in (skipped.text or "")
    verified = found["arr-coc-tiny.onnx", "nnapi · pixel-8"]
    assert [part.tag for part in verified] == ["system-out"]
    assert "max abs relevance" in (verified[0].text or "")
    assert "≤ 1e-4" in (verified[0].text or "")


def test_texts_that_xml_cannot_hold(builder: Any) -> None:
    builder.reference(device="<GPU> & \x00 ]]>")
    builder.artifact("onnx", "fp32")
    evil = fact(Code.TEXT, text='\x00\x1b[31m]]> </failure> & "quotes" \ufffe')
    place = EvaluationResult(place='c"pu\x07', status="rejected", reasons=(evil,))
    builder.judge("onnx", [place], 10)
    text = to_junit(read_study(builder.folder))
    (case,) = cases(text).values()
    failure = case.find("failure")
    assert failure is not None
    assert '[31m]]> </failure> & "quotes"' in (failure.text or "")
    text.encode()
    fits(text)


def test_the_command_writes_it(filled: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "results" / "edgekit.xml"
    assert exit_code("report", filled.folder, "--junit", path) == 0
    assert str(path) in capsys.readouterr().out
    assert path.read_text() == to_junit(read_study(filled.folder))
    (tmp_path / "file").write_text("")
    assert exit_code("report", filled.folder, "--junit", tmp_path / "file" / "edgekit.xml") == 2
    assert "cannot write 'JUNIT'".replace("JUNIT", str(tmp_path / "file" / "edgekit.xml")) in capsys.readouterr().err
